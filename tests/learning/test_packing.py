"""Shared prefixes: packing keeps every sequence, its positions, and its budget; results do not change."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_cases import TINY, make_learner, naive_logprobs, segment, stir, tokens

from arlas.learning.batch import Sample, TrainBatch, micro_batches
from arlas.types import Seat, Segment

# Few token values and a common beginning, so that prefixes are shared at many depths.
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=30)
CASES = st.lists(
    st.tuples(PROMPTS, st.lists(st.integers(0, 1), min_size=1, max_size=4)), min_size=1
)


def _path(batch: TrainBatch, row: int, column: int) -> list[int]:
    """The columns that a place may look at, by the mask's own rule, one comparison at a time."""
    if batch.end_BT is None:
        return list(range(column + 1))
    ends = batch.end_BT[row].tolist()
    return [k for k in range(column + 1) if column < ends[k]]


@settings(max_examples=60, deadline=None)
@given(CASES, st.sampled_from([0.0, 50.0, 1e6]), st.sampled_from([1, 64, 10_000]), st.booleans())
def test_every_action_token_sees_exactly_its_own_sequence(
    cases: list[tuple[list[int], list[int]]], share: float, budget: int, pack: bool
) -> None:
    """Each action token appears once, with its own context in order, at positions 0, 1, 2 …"""
    start = [5] * 18
    segments = [segment([([*start, *p], False), (a, True), ([9], False)]) for p, a in cases]
    samples = [Sample(s, float(i)) for i, s in enumerate(segments)]
    found = []
    for batch in micro_batches(samples, budget, share, pack):
        rows, width = batch.input_ids_BT.shape
        assert rows == 1 or rows * width <= budget
        # Each number names one segment, and each segment has one number.
        named = set(zip(batch.segment_N.tolist(), batch.advantages_N.tolist(), strict=True))
        assert len(named) == len({n for n, _ in named}) == len({a for _, a in named})
        for n in range(len(batch.targets_N)):
            row, column = int(batch.row_N[n]), int(batch.column_N[n])
            path = _path(batch, row, column)
            assert batch.position_ids_BT[row, path].tolist() == list(range(len(path)))
            context = batch.input_ids_BT[row, path].tolist()
            sampler = float(batch.sampler_logprobs_N[n])
            found.append(
                (float(batch.advantages_N[n]), context, int(batch.targets_N[n]), round(sampler, 4))
            )
    expected = [
        (float(i), list(s.token_ids[:t]), s.token_ids[t], round(s.logprobs[t], 4))
        for i, s in enumerate(segments)
        for t in range(len(s.token_ids))
        if s.action_mask[t]
    ]
    assert [f[:3] for f in sorted(found)] == [e[:3] for e in sorted(expected)]
    assert [f[3] for f in sorted(found)] == pytest.approx(
        [e[3] for e in sorted(expected)], abs=1e-3
    )


def _tree(seed: int = 0) -> list[Segment]:
    """A common prompt, two continuations of it, three replies each, and one reply that occurs twice."""
    rng = random.Random(seed)
    prompt, made = tokens(rng, 40), []
    for _ in range(2):
        more = tokens(rng, 10)
        made += [
            segment([([*prompt, *more], False), (tokens(rng, 4 + i), True)], rng) for i in range(3)
        ]
    return [*made, made[0]]


@pytest.mark.parametrize("model", TINY)
def test_shared_prefixes_change_no_log_probability_and_no_gradient(model: str) -> None:
    """One shared row against each segment alone through the full model, past Gemma's window of 16 too."""
    learner = make_learner(model)
    stir(learner)
    assert learner.share == 6 * 64
    segments = _tree()
    (batch,) = micro_batches([Sample(s, float(i)) for i, s in enumerate(segments)], 1000, 384.0)
    assert batch.input_ids_BT.shape[0] == 1
    assert batch.input_ids_BT.numel() < 0.3 * sum(len(s.token_ids) for s in segments)
    learner.model.set_adapter("agent")
    named = learner.parameters(Seat.AGENT)
    weights = torch.linspace(-1, 1, len(batch.targets_N))
    found_N = learner._logprobs(batch)
    found = torch.autograd.grad((found_N * weights).sum(), list(named.values()))
    order = sorted(range(len(segments)), key=lambda i: segments[i].token_ids[:-1])
    naive_N = torch.cat([naive_logprobs(learner, segments[i]) for i in order])
    expected = torch.autograd.grad((naive_N * weights).sum(), list(named.values()))
    torch.testing.assert_close(found_N, naive_N, atol=1e-5, rtol=1e-5)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_packed_rows_are_filled_up_to_the_longest() -> None:
    """Unrelated sequences share rows: none is longer than before, hardly any place is left empty."""
    rng = random.Random(0)
    lengths = [200, *(rng.randrange(10, 90) for _ in range(60))]
    samples = [
        Sample(segment([(tokens(rng, n), False), (tokens(rng, 3), True)]), float(n))
        for n in lengths
    ]
    plain, packed = (micro_batches(samples, 4000, 384.0, pack) for pack in (False, True))
    assert max(b.input_ids_BT.shape[1] for b in packed) == 202
    places = [sum(b.input_ids_BT.numel() for b in batches) for batches in (plain, packed)]
    held = sum(n + 2 for n in lengths)
    assert held <= places[1] < 1.1 * held < places[0]
    for batch in packed:
        numbered = set(zip(batch.segment_N.tolist(), batch.advantages_N.tolist(), strict=True))
        assert len(numbered) == len(batch.targets_N) / 3


def test_prefixes_are_shared_only_where_it_pays() -> None:
    """Short common beginnings and long rows for little are left alone; the row limit holds."""
    rng = random.Random(0)
    start = tokens(rng, 20)
    samples = [
        Sample(segment([([*start, *tokens(rng, 200)], False), ([1], True)]), 0.0) for _ in range(9)
    ]
    assert all(b.end_BT is None for b in micro_batches(samples, 1000, share=10.0))
    assert any(b.end_BT is not None for b in micro_batches(samples, 1000, share=1e4))
    for batch in micro_batches(samples, 500, share=1e9):
        assert batch.input_ids_BT.numel() <= 500
    short = [Sample(segment([([*start[:15], i], False), ([1], True)]), 0.0) for i in range(9)]
    assert all(b.end_BT is None for b in micro_batches(short, 1000, share=1e9))


def test_models_whose_memory_is_not_attention_share_nothing() -> None:
    """A window without layer types, another kind of layer, or another attention kernel: rows stay plain."""
    from transformers import LlamaConfig

    from arlas.learning.logprobs import can_share

    def config(**options: object) -> LlamaConfig:
        made = LlamaConfig()
        for name, value in ({"_attn_implementation": "sdpa"} | options).items():
            setattr(made, name, value)
        return made

    assert can_share(config())
    assert not can_share(config(sliding_window=64))
    assert not can_share(config(layer_types=["full_attention", "linear_attention"]))
    assert not can_share(config(_attn_implementation="flash_attention_2"))
