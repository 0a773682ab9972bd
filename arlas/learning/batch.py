"""From groups of episodes to tensors: who is left out, what is credited, and how tokens are packed.

**Shared prefixes.** The prompts of a group begin alike, and prompts dominate the cost. So a row of a batch is
not one sequence but a forest of them, written out depth first: a common prefix stands there once, and each
token knows where the part of the row that may look back at it ends (``end_BT``). Token q sees token k if
k ≤ q < end[k]; that is exactly "k lies on q's own path", and positions count along the path. The same
log-probabilities and gradients come out as for separate sequences.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from arlas.choices import Baseline
from arlas.config import AlgoConfig
from arlas.learning.advantage import MovingBaseline, group_advantages, leave_one_out
from arlas.learning.loss import aggregate
from arlas.learning.shaping import PLAIN, Shaped, Shaping, mean, shape, token_penalties
from arlas.types import Group, Seat, Segment

_Item = TypeVar("_Item")

MAX_SHARED_ROW = 4096
"""Longest row with shared prefixes: its attention mask is a dense square."""
MIN_SHARED = 16
"""Shorter common prefixes are not worth a mask."""


@dataclass(frozen=True)
class Sample:
    """One segment to train on. ``weight`` is per action token and 1 until `optimizer_batches` sets it.

    ``penalties`` are added to the advantage, one an action token; empty: none.
    """

    segment: Segment
    advantage: float
    group: int = 0
    episode: int = 0
    weight: float = 1.0
    denominator: float = 1.0
    penalties: tuple[float, ...] = ()

    @property
    def actions(self) -> int:
        """Number of action tokens."""
        return sum(self.segment.action_mask)


@dataclass(frozen=True)
class Counts:
    """What `build_samples` used and what it left out."""

    groups: int = 0
    groups_flat: int = 0
    """Dropped whole: all rewards equal."""
    groups_small: int = 0
    """Dropped whole: fewer than two usable episodes."""
    episodes: int = 0
    episodes_error: int = 0
    shaped: tuple[Shaped, ...] = ()
    """Every usable episode, also those of dropped groups."""
    token_penalty: float = 0.0
    """Sum of the token penalties of all usable episodes."""

    @property
    def rewards(self) -> tuple[float, ...]:
        """The payoffs themselves, of every usable episode."""
        return tuple(s.raw for s in self.shaped)

    def metrics(self) -> dict[str, float]:
        """As numbers to log; ``reward_se`` is the standard error of ``reward_mean``, the raw rewards' mean."""
        rewards = self.rewards
        n, tokens = len(rewards), sum(s.tokens for s in self.shaped)
        average = mean(rewards) if n else math.nan
        square = sum((r - average) ** 2 for r in rewards)
        return {
            "groups": self.groups,
            "groups_flat": self.groups_flat,
            "groups_small": self.groups_small,
            "episodes": self.episodes,
            "episodes_error": self.episodes_error,
            "reward_mean": average,
            "reward_se": math.sqrt(square / (n - 1) / n) if n > 1 else math.nan,
            "reward_shaped_mean": mean([s.reward for s in self.shaped]) if n else math.nan,
            "reply_tokens": tokens / max(1, sum(s.replies for s in self.shaped)),
            "episode_tokens": tokens / n if n else math.nan,
            "repeated_share": sum(s.repeated for s in self.shaped) / max(1, tokens),
            "penalty_length": mean([s.length for s in self.shaped]),
            "penalty_repetition": mean([s.repetition for s in self.shaped]),
            "penalty_tokens": self.token_penalty / max(1, tokens),
        }


@dataclass(frozen=True)
class TrainBatch:
    """One micro-batch: B rows of T tokens, and N action tokens that are predicted from places in them.

    ``end_BT`` is None if every row is one plain sequence (causal attention needs no mask then).
    ``denominator`` is that of the whole optimizer batch. ``old_`` and ``ref_logprobs_N`` are filled in by
    the learner where they are needed.
    """

    input_ids_BT: Tensor
    position_ids_BT: Tensor
    end_BT: Tensor | None
    row_N: Tensor
    column_N: Tensor
    """The place whose hidden state predicts the action token."""
    targets_N: Tensor
    segment_N: Tensor
    """Number of the segment within the micro-batch; a segment is never split."""
    sampler_logprobs_N: Tensor
    advantages_N: Tensor
    weights_N: Tensor
    denominator: float
    old_logprobs_N: Tensor | None = None
    ref_logprobs_N: Tensor | None = None

    def to(self, device: torch.device | str) -> TrainBatch:
        """The batch on another device."""
        moved: dict[str, Any] = {
            f.name: value.to(device)
            for f in dataclasses.fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return dataclasses.replace(self, **moved)


def build_samples(
    groups: Sequence[Group],
    seat: Seat,
    algo: AlgoConfig,
    shaping: Shaping = PLAIN,
    iteration: int = 1,
    moving: MovingBaseline | None = None,
) -> tuple[list[Sample], Counts]:
    """The segments of ``seat`` with the advantages of their episodes.

    Error episodes leave their group first (invariant 6); then groups with fewer than two episodes or with
    equal shaped rewards are dropped whole and counted. With the moving baseline, which is ``moving`` and
    moves on here, every usable episode teaches.
    """
    samples: list[Sample] = []
    every: list[Shaped] = []
    used = flat = small = episodes = errors = 0
    penalty = 0.0
    for index, group in enumerate(groups):
        usable = group.usable
        errors += len(group.episodes) - len(usable)
        shaped_G = shape(group, seat, shaping, iteration)
        every += shaped_G
        cut_G = [
            [(s, token_penalties(s, seat, shaping)) for s in e.segments.get(seat, ())]
            for e in usable
        ]
        penalty += math.fsum(p for cut in cut_G for _, added in cut for p in added)
        advantages_G = _advantages(group, shaped_G, algo, moving)
        if advantages_G is None:
            flat += len(usable) >= 2
            small += len(usable) < 2
            continue
        used += 1
        for cut, advantage in zip(cut_G, advantages_G, strict=True):
            for segment, added in cut:
                if any(segment.action_mask):
                    sample = Sample(segment, advantage, index, episodes, penalties=added)
                    samples.append(sample)
            episodes += 1
    return samples, Counts(used, flat, small, episodes, errors, tuple(every), penalty)


def teaches(group: Group, seat: Seat, shaping: Shaping, iteration: int) -> bool:
    """Whether the group is neither too small nor flat, in the shaped rewards that the learner sees."""
    shaped_G = shape(group, seat, shaping, iteration)
    return group_advantages([s.reward for s in shaped_G]) is not None


def _advantages(
    group: Group, shaped_G: Sequence[Shaped], algo: AlgoConfig, moving: MovingBaseline | None
) -> list[float] | None:
    """The advantages of a group's usable episodes under the chosen baseline; None: the group is dropped."""
    rewards_G = [s.reward for s in shaped_G]
    if algo.baseline is Baseline.LEAVE_ONE_OUT:
        return leave_one_out(rewards_G)
    if algo.baseline is Baseline.MOVING:
        if moving is None:
            raise ValueError("algo.baseline=moving needs the average so far")
        key = group.task if algo.baseline_per_task else ""
        return moving.advantages(rewards_G, key) or None
    return group_advantages(rewards_G, algo.normalize_std)


def optimizer_batches(samples: Sequence[Sample], algo: AlgoConfig, seed: int) -> list[list[Sample]]:
    """Cuts samples into optimizer batches of at most ``algo.batch_size`` episodes (0: one batch).

    Groups are shuffled but stay together, because their episodes share prompts; batches differ by at most
    one episode in size, so that no step is taken on a remainder. Sets each sample's weight and the batch's
    one denominator.
    """
    order = sorted({s.group for s in samples})
    random.Random(seed).shuffle(order)
    rank = {group: i for i, group in enumerate(order)}
    episodes: dict[int, list[Sample]] = {}
    for sample in sorted(samples, key=lambda s: (rank[s.group], s.episode)):
        episodes.setdefault(sample.episode, []).append(sample)
    runs = list(episodes.values())
    batches = []
    for part in even_parts(runs, algo.batch_size):
        tokens = [sum(s.actions for s in run) for run in part]
        how = aggregate(algo.aggregation, tokens, algo.constant_length)
        batches.append(
            [
                dataclasses.replace(s, weight=weight, denominator=how.denominator)
                for run, weight in zip(part, how.weights, strict=True)
                for s in run
            ]
        )
    return batches


def even_parts(items: Sequence[_Item], size: int) -> list[Sequence[_Item]]:
    """Cuts into the fewest parts of at most ``size`` (0: no limit) that differ by at most one item."""
    n = len(items)
    parts = math.ceil(n / (size or n)) if n else 0
    return [items[i * n // parts : (i + 1) * n // parts] for i in range(parts)]


def micro_batches(
    samples: Sequence[Sample], max_tokens: int, share: float = 0.0, pack: bool = False
) -> list[TrainBatch]:
    """Packs one optimizer batch into micro-batches of at most ``max_tokens`` tokens with padding.

    ``share`` is the cost of one token in the linear layers divided by the cost of attending to one more
    token (about 6 × hidden size); 0 shares nothing. A prefix is shared where it saves more than the larger
    attention square costs. ``pack`` fills rows up to the longest one with sequences that have nothing in common.
    """
    rows = _pack_rows(samples, max_tokens, share)
    if pack:
        rows = _filled(rows, min(max_tokens, MAX_SHARED_ROW))
    rows.sort(key=lambda row: (row.samples > 1, len(row.ids)))
    batches: list[TrainBatch] = []
    open_rows: list[_Row] = []
    for row in rows:
        # Rows come in growing length, so the new one would set the width.
        full = (len(open_rows) + 1) * len(row.ids) > max_tokens
        if open_rows and (full or (row.samples > 1) != (open_rows[-1].samples > 1)):
            batches.append(_collate(open_rows))
            open_rows = []
        open_rows.append(row)
    if open_rows:
        batches.append(_collate(open_rows))
    return batches


class _Row:
    """A forest of sequences in depth-first order; `add` must be called in lexicographic order."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.ends: list[int] = []
        self.actions: list[tuple[int, int, int, float, float, float]] = []
        """(column of the predictor, target, segment, sampler log-probability, advantage, weight)"""
        self.samples = 0
        self.denominator = 1.0
        self._path: list[int] = []
        """Columns of the latest sequence by depth."""

    def common(self, token_ids: Sequence[int]) -> int:
        """How many leading tokens the latest sequence shares with ``token_ids``."""
        n = 0
        for column, token in zip(self._path, token_ids, strict=False):
            if self.ids[column] != token:
                break
            n += 1
        return n

    def add(self, inputs: Sequence[int], sample: Sample) -> None:
        shared, start = self.common(inputs), len(self.ids)
        for column in self._path[shared:]:
            self.ends[column] = start
        self.ids += inputs[shared:]
        self.positions += range(shared, len(inputs))
        self.ends += [-1] * (len(inputs) - shared)
        self._path = self._path[:shared] + list(range(start, len(self.ids)))
        segment, penalties = sample.segment, iter(sample.penalties)
        for i, acted in enumerate(segment.action_mask):
            if acted:
                advantage = sample.advantage + next(penalties, 0.0)
                scores = (segment.logprobs[i], advantage, sample.weight)
                self.actions.append(
                    (self._path[i - 1], segment.token_ids[i], self.samples, *scores)
                )
        self.samples += 1
        self.denominator = sample.denominator

    def closed_ends(self) -> list[int]:
        return [len(self.ids) if end < 0 else end for end in self.ends]

    def join(self, other: _Row) -> None:
        """Puts another forest behind this one: neither sees the other."""
        start = len(self.ids)
        self.ends = self.closed_ends() + [end + start for end in other.closed_ends()]
        self.ids += other.ids
        self.positions += other.positions
        self.actions += [
            (column + start, target, segment + self.samples, logprob, advantage, weight)
            for column, target, segment, logprob, advantage, weight in other.actions
        ]
        self.samples += other.samples
        self._path = []


def _pack_rows(samples: Sequence[Sample], max_tokens: int, share: float) -> list[_Row]:
    rows: list[_Row] = []
    limit = min(max_tokens, MAX_SHARED_ROW)
    for inputs, sample in sorted(((_inputs(s), s) for s in samples), key=lambda pair: pair[0]):
        if rows and share > 0.0:
            row = rows[-1]
            shared = row.common(inputs)
            new, length = len(inputs) - shared, len(row.ids)
            # Worth it: the linear layers' work saved against the masked part of the square.
            saves = shared >= MIN_SHARED and shared * share > new * length
            if saves and length + new <= limit:
                row.add(inputs, sample)
                continue
        rows.append(_Row())
        rows[-1].add(inputs, sample)
    return rows


def _filled(rows: Sequence[_Row], limit: int) -> list[_Row]:
    """Rows joined into few, none longer than the longest row or, if that is shorter, ``limit`` (first fit)."""
    bins: list[_Row] = []
    longest = max((len(row.ids) for row in rows), default=0)
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        space = min(longest, limit) - len(row.ids)
        home = next((b for b in bins if len(b.ids) <= space), None)
        if home is None:
            bins.append(row)
        else:
            home.join(row)
    return bins


def _inputs(sample: Sample) -> tuple[int, ...]:
    """The tokens that predict something: all before the last action token."""
    mask = sample.segment.action_mask
    if mask[0]:
        raise ValueError("the first token of a segment cannot be an action: nothing predicts it")
    last = len(mask) - 1 - mask[::-1].index(True)
    return sample.segment.token_ids[:last]


def _collate(rows: Sequence[_Row]) -> TrainBatch:
    width = max(len(row.ids) for row in rows)

    def pad(values: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*v, *[fill] * (width - len(v))] for v in values], dtype=torch.long)

    first = list(itertools.accumulate((row.samples for row in rows), initial=0))
    actions = [
        (i, column, target, first[i] + segment, *scores)
        for i, row in enumerate(rows)
        for column, target, segment, *scores in row.actions
    ]
    row_N, column_N, targets_N, segment_N, sampler_N, advantages_N, weights_N = zip(
        *actions, strict=True
    )
    tree = any(row.samples > 1 for row in rows)
    # Plain rows count on through the padding: transformers takes a restart for a packed sequence.
    positions = pad([row.positions for row in rows], 0)
    plain = torch.arange(width).repeat(len(rows), 1)
    return TrainBatch(
        input_ids_BT=pad([row.ids for row in rows], 0),
        position_ids_BT=positions if tree else plain,
        # Padding sees itself: a row of attention with nothing in it would be NaN.
        end_BT=pad([row.closed_ends() for row in rows], width) if tree else None,
        row_N=torch.tensor(row_N),
        column_N=torch.tensor(column_N),
        targets_N=torch.tensor(targets_N),
        segment_N=torch.tensor(segment_N),
        sampler_logprobs_N=torch.tensor(sampler_N, dtype=torch.float32),
        advantages_N=torch.tensor(advantages_N, dtype=torch.float32),
        weights_N=torch.tensor(weights_N, dtype=torch.float32),
        denominator=rows[0].denominator,
    )
