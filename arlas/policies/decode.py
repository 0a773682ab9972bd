"""Continuous batching over a transformers model: rows join after a prefill and leave when they are done.

Every row keeps the keys and values of token i in slot i of its line of the cache, so a slot *is* a position:
shared prefixes are copied from line to line, finished rows leave by moving the last line into the hole, and one
mask rule (``slot <= position``, and within the window of a sliding layer) holds for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

from arlas.policies.prefix import LayerKV, PrefixStore, plan
from arlas.policies.sampling import draw
from arlas.types import Request, StopReason


class SlotCache(transformers.Cache):  # type: ignore[misc]
    """Keys and values [lines, heads, slots, width] a layer, written in place.

    `aim` says where the tokens of the next forward pass go and what they may read.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.kv: LayerKV = []
        self.lines = 0
        self.slots = 0
        self._write: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self._read: Tensor | slice = slice(0)
        self._depth = 0

    def aim(
        self, write: tuple[Tensor, Tensor, Tensor, Tensor], read: Tensor | slice, depth: int
    ) -> None:
        """``write``: for each token its batch row, time, line and slot; ``read``: lines; ``depth``: slots."""
        self._write, self._read, self._depth = write, read, depth

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Called by the model's layers; returns what the queries may look at."""
        while len(self.kv) <= layer_idx:
            self.kv.append((self._zeros(key_states), self._zeros(value_states)))
        assert self._write is not None
        row, time, line, slot = self._write
        views = []
        for buffer, states in zip(self.kv[layer_idx], (key_states, value_states), strict=True):
            buffer[line, :, slot] = states[row, :, time]
            views.append(buffer[self._read, :, : self._depth])
        return views[0], views[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Unused by models that are given positions and masks; here for those that ask."""
        return self._depth

    def resize(self, lines: int, slots: int, live: int) -> None:
        """New buffers that keep the first ``live`` lines."""
        kept = min(self.slots, slots)
        self.lines, self.slots = lines, slots
        for i, pair in enumerate(self.kv):
            grown = tuple(self._zeros(old) for old in pair)
            for new, old in zip(grown, pair, strict=True):
                new[:live, :, :kept] = old[:live, :, :kept]
            self.kv[i] = (grown[0], grown[1])

    def copy(self, source: int, targets: Sequence[int], start: int, end: int) -> None:
        """Slots [start, end) of one line to others."""
        for pair in self.kv:
            for buffer in pair:
                buffer[list(targets), :, start:end] = buffer[source, :, start:end]

    def put(self, line: int, start: int, runs: Sequence[LayerKV]) -> None:
        """Writes consecutive runs of tokens into a line."""
        for i, pair in enumerate(self.kv):
            for side, buffer in enumerate(pair):
                joined = torch.cat([run[i][side] for run in runs], dim=1)
                buffer[line, :, start : start + joined.shape[1]] = joined

    def line(self, line: int) -> LayerKV:
        """Views of one line, for `PrefixStore.insert`."""
        return [(k[line], v[line]) for k, v in self.kv]

    def wipe(self, line: int) -> None:
        """Zeros a line that may hold what is not a number (masked slots are multiplied by 0, not skipped)."""
        for pair in self.kv:
            for buffer in pair:
                buffer[line].zero_()

    def _zeros(self, like: Tensor) -> Tensor:
        # Zeros, not empty: a masked slot that holds NaN would still spoil the whole row.
        return like.new_zeros((self.lines, like.shape[1], self.slots, like.shape[3]))


@dataclass(eq=False)
class Row:
    """One request on its way."""

    request: Request
    adapter: str | None
    """The engine's own name of the adapter."""
    uniforms: list[float]
    max_tokens: int
    tag: Any = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: StopReason | None = None
    error: str | None = None

    @property
    def prompt(self) -> tuple[int, ...]:
        return self.request.prompt_ids

    @property
    def room(self) -> int:
        """Slots that the row needs in the end."""
        return len(self.prompt) + self.max_tokens


Forward = Callable[[list[str | None], dict[str, Any]], Tensor]
"""(adapter of each row, inputs of the model) → logits [B, 1, V]."""


class Engine:
    """The rows that are being decoded. Not thread-safe: one thread at a time.

    ``layer_windows`` maps the model's layer types to their sliding windows (None: all of the past); it is
    None for models that take one mask for all layers, whose window is then ``window``.
    """

    chunk = 512
    """Prompt tokens of one row in a forward pass."""
    min_shared = 32
    """Shared spans shorter than this are not worth a forward pass of their own."""

    def __init__(
        self,
        forward: Forward,
        device: torch.device,
        dtype: torch.dtype,
        stop_ids: frozenset[int],
        layer_windows: dict[str, int | None] | None,
        window: int | None,
        share_prefix: bool,
        prefix_cache_tokens: int,
        prefill_tokens: int = 4096,
    ) -> None:
        self.rows: list[Row] = []
        self.store = PrefixStore(prefix_cache_tokens if share_prefix else 0)
        self.computed_tokens = 0
        """Prompt tokens that went through the model, for measurements and tests."""
        self._forward, self._device, self._dtype, self._stop_ids = forward, device, dtype, stop_ids
        self._layer_windows, self._window = layer_windows, window
        self._share, self._prefill_tokens = share_prefix, prefill_tokens
        self._cache = SlotCache()

    def admit(self, new: Sequence[Row], budget: int) -> list[Row]:
        """Prefills rows and draws their first tokens; returns the rows that are already done."""
        if not new:
            return []
        first = len(self.rows)
        self._make_room(first + len(new), max(r.room for r in [*self.rows, *new]), budget)
        logits_BV = self._prefill(new, first)
        self.rows += new
        return self._sample(logits_BV, first)

    def step(self) -> list[Row]:
        """Draws one token for every row; returns the rows that are done and have left."""
        positions = [len(r.prompt) + len(r.tokens) - 1 for r in self.rows]
        ids = torch.tensor([[r.tokens[-1]] for r in self.rows], device=self._device)
        at = torch.tensor(positions, device=self._device)
        lines = torch.arange(len(self.rows), device=self._device)
        zeros = torch.zeros_like(lines)
        self._cache.aim((lines, zeros, lines, at), slice(len(self.rows)), max(positions) + 1)
        logits_BV = self._run([r.adapter for r in self.rows], ids, at[:, None], max(positions) + 1)
        return self._sample(logits_BV, 0)

    def leave(self, gone: Callable[[Row], bool]) -> list[Row]:
        """Takes rows out; the last line moves into each hole."""
        out = []
        for i in reversed(range(len(self.rows))):
            if not gone(self.rows[i]):
                continue
            out.append(self.rows[i])
            last = self.rows.pop()
            if i < len(self.rows):
                self._cache.copy(len(self.rows), [i], 0, len(last.prompt) + len(last.tokens))
                self.rows[i] = last
        return out[::-1]

    def reset(self) -> list[Row]:
        """Frees everything after a failure; returns the rows that were on their way."""
        out, self.rows = self.rows, []
        self._cache = SlotCache()
        self.store.clear()
        return out

    # --- inside --------------------------------------------------------------------------------------

    def _make_room(self, lines: int, slots: int, budget: int) -> None:
        cache = self._cache
        if lines <= cache.lines and slots <= cache.slots:
            return
        slots = max(-(-slots // 64) * 64, cache.slots if lines * cache.slots <= budget else 0)
        roomy = max(-(-lines // 8) * 8, cache.lines)  # not a new buffer for every row that joins
        lines = roomy if roomy * slots <= budget else lines
        cache.resize(lines, slots, len(self.rows))

    def _sample(self, logits_BV: Tensor, first: int) -> list[Row]:
        rows = self.rows[first:]
        numbers = torch.tensor([r.uniforms[len(r.tokens)] for r in rows], dtype=torch.float64)
        samplings = [r.request.sampling for r in rows]
        penalized = any(s.repetition_penalty != 1.0 for s in samplings)
        contexts = [(*r.prompt, *r.tokens) if penalized else () for r in rows]
        tokens, logprobs = draw(logits_BV, numbers, samplings, contexts)
        done = False
        for i, (row, token, logprob) in enumerate(zip(rows, tokens, logprobs, strict=True)):
            if not -1e30 < logprob <= 1e-3:
                row.error = "the model's logits are not finite"
                self._cache.wipe(first + i)
            else:
                row.tokens.append(token)
                row.logprobs.append(min(logprob, 0.0))
                if token in self._stop_ids:
                    row.stop = StopReason.STOP
                elif len(row.tokens) >= row.max_tokens:
                    row.stop = StopReason.LENGTH
            done = done or row.stop is not None or row.error is not None
        if not done:
            return []
        return self.leave(lambda row: row.stop is not None or row.error is not None)

    def _prefill(self, new: Sequence[Row], first: int) -> Tensor:
        """Fills the lines ``first …`` with the prompts; returns the logits after each, in order."""
        unique: dict[Any, int] = {}
        owner = []  # for each row the first row with the same adapter and prompt
        for i, row in enumerate(new):
            owner.append(unique.setdefault((row.adapter, row.prompt) if self._share else i, i))
        leaders = list(dict.fromkeys(owner))
        prompts = [(new[i].adapter, new[i].prompt) for i in leaders]
        shared = self.min_shared if self._share else 1 << 60
        logits: dict[int, Tensor] = {}
        for level in plan(prompts, shared):
            jobs = []
            for span in level:
                i = leaders[span.members[0]]
                start = self._from_store(new[i], first + i, span.start, span.end)
                if start < span.end:
                    jobs.append((i, start, span.end, span.end == len(new[i].prompt)))
            self._compute(new, first, jobs, logits)
            for span in level:
                source, *others = (first + leaders[m] for m in span.members)
                if others:
                    self._cache.copy(source, others, span.start, span.end)
        for i in leaders:
            twins = [first + j for j, leader in enumerate(owner) if leader == i and j != i]
            if twins:
                self._cache.copy(first + i, twins, 0, len(new[i].prompt))
            self.store.insert(new[i].adapter, new[i].prompt, self._cache.line(first + i))
        return torch.stack([logits[i] for i in owner])

    def _from_store(self, row: Row, line: int, start: int, end: int) -> int:
        """Loads what the store has of a span; returns where computing must begin."""
        size = self.store.block
        # The last token of a prompt is always computed: its logits are wanted.
        wanted = row.prompt[: min(end, len(row.prompt) - 1)]
        blocks = self.store.match(row.adapter, wanted)[start // size :]
        if len(blocks) * size + start // size * size <= start:
            return start
        self._cache.put(line, start // size * size, [block.kv for block in blocks])
        return (start // size + len(blocks)) * size

    def _compute(
        self,
        new: Sequence[Row],
        first: int,
        jobs: list[tuple[int, int, int, bool]],
        logits: dict[int, Tensor],
    ) -> None:
        """Runs spans (row, start, end, is the prompt's end) of equal depth through the model."""
        while jobs:
            # Long spans go piece by piece; spans of similar length go together, to pad little.
            jobs.sort(key=lambda job: (job[1] - min(job[2], job[1] + self.chunk), job[0]))
            longest = min(jobs[0][2] - jobs[0][1], self.chunk)
            size = 1
            while size < len(jobs) and (size + 1) * longest <= self._prefill_tokens:
                length = min(jobs[size][2] - jobs[size][1], self.chunk)
                if length < 0.75 * longest and longest > 16:
                    break
                size += 1
            batch, jobs = jobs[:size], jobs[size:]
            pieces = [(row, start, min(end, start + self.chunk)) for row, start, end, _ in batch]
            logits_BV = self._piece(new, first, pieces)
            for (row, _, end, final), (_, _, reached), out in zip(
                batch, pieces, logits_BV, strict=True
            ):
                if reached < end:
                    jobs.append((row, reached, end, final))
                elif final:
                    logits[row] = out

    def _piece(self, new: Sequence[Row], first: int, pieces: list[tuple[int, int, int]]) -> Tensor:
        """One forward pass over prompt tokens [start, end) of some rows, padded on the left."""
        width = max(end - start for _, start, end in pieces)
        depth = max(end for *_, end in pieces)
        ids = torch.zeros((len(pieces), width), dtype=torch.long)
        positions = torch.zeros_like(ids)  # padding looks at slot 0 and is written nowhere
        write: list[Tensor] = []
        for i, (row, start, end) in enumerate(pieces):
            n = end - start
            ids[i, width - n :] = torch.tensor(new[row].prompt[start:end])
            positions[i, width - n :] = torch.arange(start, end)
            line = torch.full((n,), first + row)
            write.append(
                torch.stack(
                    [
                        torch.full((n,), i),
                        torch.arange(width - n, width),
                        line,
                        torch.arange(start, end),
                    ]
                )
            )
            self.computed_tokens += n
        where = torch.cat(write, dim=1).to(self._device)
        lines = torch.tensor([first + row for row, *_ in pieces], device=self._device)
        self._cache.aim((where[0], where[1], where[2], where[3]), lines, depth)
        adapters = [new[row].adapter for row, *_ in pieces]
        return self._run(adapters, ids.to(self._device), positions.to(self._device), depth)

    def _run(
        self, adapters: list[str | None], ids_BT: Tensor, positions_BT: Tensor, depth: int
    ) -> Tensor:
        """Logits [B, V] after the last token."""
        slots = torch.arange(depth, device=self._device)
        masks = {}
        windows = self._layer_windows or {"": self._window}
        for kind, window in windows.items():
            seen = slots <= positions_BT[..., None]
            if window is not None:
                seen &= positions_BT[..., None] - slots < window
            mask = torch.zeros(seen.shape, dtype=self._dtype, device=self._device)
            masks[kind] = mask.masked_fill_(~seen, torch.finfo(self._dtype).min)[:, None]
        inputs = {
            "input_ids": ids_BT,
            "position_ids": positions_BT,
            "attention_mask": masks if self._layer_windows is not None else masks[""],
            "past_key_values": self._cache,
            "use_cache": True,
            "logits_to_keep": 1,
        }
        return self._forward(adapters, inputs)[:, -1]
