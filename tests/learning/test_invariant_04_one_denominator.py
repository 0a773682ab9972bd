"""Invariant 4: one denominator per optimizer batch: 1 × 8 equals 8 × 1 micro-batches, to rounding."""

from __future__ import annotations

import statistics

import pytest
import torch
from learning_cases import (
    TEMPERATURE,
    TINY,
    CaughtGradients,
    groups_sharing_prompts,
    make_learner,
    naive_logprobs,
    stir,
)

from arlas.config import InitConfig
from arlas.learning.batch import build_samples, micro_batches, optimizer_batches
from arlas.learning.learner import Learner
from arlas.types import Group, Seat

AGGREGATIONS = ("token_mean", "sequence_mean", "constant")


def _caught(model: str, share: bool, init: InitConfig, **algo: object) -> tuple[Learner, dict]:
    learner = make_learner(model, init=init, seats=[Seat.AGENT], max_grad_norm=1e9, **algo)
    stir(learner)
    learner.share = learner.share if share else 0.0
    caught = CaughtGradients(learner, Seat.AGENT)
    metrics = learner.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
    return learner, {"gradients": caught.steps[0], "metrics": metrics}


def _brute_force(learner: Learner, groups: list[Group]) -> dict[str, torch.Tensor]:
    """The gradient of the whole loss, one segment at a time through the full model, in plain sums."""
    algo, seat = learner.algo, Seat.AGENT
    episodes, loss = [], torch.zeros(())
    for g in groups:
        rewards = [e.rewards[seat] for e in g.episodes]
        mean, std = statistics.fmean(rewards), statistics.pstdev(rewards)
        episodes += [((e.rewards[seat] - mean) / std, e.segments[seat]) for e in g.episodes]
    tokens = [sum(sum(s.action_mask) for s in segments) for _, segments in episodes]
    for (advantage, segments), n in zip(episodes, tokens, strict=True):
        weight = {
            "token_mean": 1 / sum(tokens),
            "sequence_mean": 1 / n / len(tokens),
            "constant": 1 / algo.constant_length / len(tokens),
        }[algo.aggregation]
        for s in segments:
            sampler = torch.tensor([x for x, m in zip(s.logprobs, s.action_mask, strict=True) if m])
            with torch.no_grad(), learner.model.disable_adapter():
                ref = naive_logprobs(learner, s)
            learner.model.set_adapter("agent")
            lp = naive_logprobs(learner, s)
            w = torch.exp(lp.detach() - sampler).clamp(max=algo.importance_cap)
            ratio = torch.exp(lp - lp.detach())
            kl = 0.5 * (lp - ref) ** 2  # the gradient of k3+
            loss = loss + weight * (w * (-ratio * advantage + algo.beta * kl)).sum()
    named = learner.parameters(seat)
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("model", TINY)
def test_invariant_4_micro_batches_add_up(model: str, aggregation: str) -> None:
    """One big micro-batch, one a segment, shared or not: all give the brute-force gradient."""
    options = {"aggregation": aggregation, "constant_length": 20}
    runs = {
        (budget, share): _caught(model, share, InitConfig(), micro_batch_tokens=budget, **options)
        for budget, share in ((100_000, False), (1, False), (100_000, True), (90, True))
    }
    learner = runs[100_000, False][0]
    expected = _brute_force(learner, groups_sharing_prompts())
    scale = max(float(g.abs().max()) for g in expected.values())
    assert scale > 1e-4
    for _, found in runs.values():
        assert found["gradients"].keys() == expected.keys()
        for name, gradient in found["gradients"].items():
            torch.testing.assert_close(gradient, expected[name], atol=1e-5 * scale, rtol=1e-4)
        for name, value in found["metrics"].items():
            assert value == pytest.approx(runs[1, False][1]["metrics"][name], rel=1e-4, abs=1e-6)


def test_invariant_4_the_budgets_really_differ() -> None:
    """The runs above compare one micro-batch with many, and shared rows with plain ones."""
    algo = make_learner().algo
    samples, _ = build_samples(groups_sharing_prompts(), Seat.AGENT, algo)
    (part,) = optimizer_batches(samples, algo, seed=0)
    assert len(micro_batches(part, 100_000)) == 1
    assert len(micro_batches(part, 1)) == len(samples) > 8
    shared = micro_batches(part, 100_000, share=384.0)
    assert any(b.end_BT is not None for b in shared)
    sizes = [sum(b.input_ids_BT.numel() for b in part) for part in (shared, micro_batches(part, 1))]
    assert sizes[0] < 0.7 * sizes[1]
    assert TEMPERATURE == 1.2


def test_invariant_4_denominator_counts_the_whole_optimizer_batch() -> None:
    """Two optimizer batches have each its own denominator, and every micro-batch of one the same."""
    algo = make_learner(batch_size=4).algo
    samples, counts = build_samples(groups_sharing_prompts(count=3), Seat.AGENT, algo)
    parts = optimizer_batches(samples, algo, seed=3)
    assert [len({s.episode for s in part}) for part in parts] == [4, 4, 4]
    assert counts.episodes == 12
    for part in parts:
        micros = micro_batches(part, 60)
        assert len(micros) > 1
        assert {m.denominator for m in micros} == {float(sum(s.actions for s in part))}
