"""Computing what prompts share only once: a plan within a batch, and a store of blocks across batches."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

Prompt = tuple[str | None, tuple[int, ...]]
"""The adapter (None: the base model) and the tokens."""
LayerKV = list[tuple[Tensor, Tensor]]
"""Keys and values of a run of tokens of one row, a pair [heads, tokens, width] for each layer."""


@dataclass(frozen=True)
class Span:
    """Tokens [start, end) that all ``members`` (indices of prompts) have in common, prefix included."""

    members: tuple[int, ...]
    start: int
    end: int


def plan(prompts: Sequence[Prompt], min_shared: int) -> list[list[Span]]:
    """Levels of spans: every prompt is covered once from 0 to its end, parents before children.

    Prompts must differ from each other. A shared span has at least ``min_shared`` tokens, and every prompt's
    last span is its own, because the logits after its last token are wanted.
    """
    levels: list[list[Span]] = []

    def cover(members: list[int], start: int, depth: int) -> None:
        first, last = prompts[members[0]][1], prompts[members[-1]][1]
        if len(members) == 1:
            add(Span((members[0],), start, len(first)), depth)
            return
        # Members are sorted, so what the first and the last share is shared by all.
        common = min(_common(first, last), len(first) - 1)
        if common - start >= min_shared:
            add(Span(tuple(members), start, common), depth)
            start, depth = common, depth + 1
        for _, group in itertools.groupby(members, lambda i: prompts[i][1][common : common + 1]):
            children = list(group)
            if len(children) == len(members):  # the first prompt is all but one token of the others
                cover(children[:1], start, depth)
                children = children[1:]
            cover(children, start, depth)

    def add(span: Span, depth: int) -> None:
        while len(levels) <= depth:
            levels.append([])
        levels[depth].append(span)

    order = sorted(range(len(prompts)), key=lambda i: (prompts[i][0] or "", prompts[i][1]))
    for _, group in itertools.groupby(order, lambda i: prompts[i][0]):
        cover(list(group), 0, 0)
    return levels


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


@dataclass(frozen=True)
class Block:
    """Keys and values of ``PrefixStore.block`` tokens after a certain prefix."""

    number: int
    adapter: str | None
    kv: LayerKV


class PrefixStore:
    """The most recently used prefixes in blocks, each keyed by its tokens and the block before it."""

    def __init__(self, capacity: int, block: int = 16) -> None:
        self.block = block
        self._room = capacity // block
        self._blocks: OrderedDict[tuple[object, tuple[int, ...]], Block] = OrderedDict()
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, adapter: str | None, tokens: Sequence[int]) -> list[Block]:
        """The blocks that hold the longest stored prefix of ``tokens``."""
        found = []
        for key in self._keys(adapter, tokens):
            if (block := self._blocks.get(key)) is None:
                break
            found.append((key, block))
        for key, _ in reversed(found):  # the beginning of a prefix outlives its end
            self._blocks.move_to_end(key)
        return [block for _, block in found]

    def insert(self, adapter: str | None, tokens: Sequence[int], kv: LayerKV) -> None:
        """Keeps the whole blocks of ``tokens``; ``kv`` holds all of their keys and values (it is copied)."""
        known = len(self.match(adapter, tokens))
        last = min(len(tokens) // self.block, known + self._room)
        if last <= known:
            return
        start, end = known * self.block, last * self.block
        copies = [(k[:, start:end].clone(), v[:, start:end].clone()) for k, v in kv]
        keys = self._keys(adapter, tokens[:end])
        for i, key in enumerate(keys):
            if i < known:
                continue
            at = slice((i - known) * self.block, (i - known + 1) * self.block)
            kept = [(k[:, at], v[:, at]) for k, v in copies]
            self._blocks[key] = Block(next(self._numbers), adapter, kept)
        self.match(adapter, tokens[:end])
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)

    def drop(self, adapter: str | None) -> None:
        """Forgets every prefix of one adapter (invariant 7)."""
        for key in [key for key, block in self._blocks.items() if block.adapter == adapter]:
            del self._blocks[key]

    def clear(self) -> None:
        """Forgets everything."""
        self._blocks.clear()

    def _keys(
        self, adapter: str | None, tokens: Sequence[int]
    ) -> Iterator[tuple[object, tuple[int, ...]]]:
        """The keys of the whole blocks of ``tokens``, up to the first that is not stored."""
        parent: object = (adapter,)
        for start in range(0, len(tokens) - self.block + 1, self.block):
            key = (parent, tuple(tokens[start : start + self.block]))
            yield key
            if key not in self._blocks:
                return
            parent = self._blocks[key].number
