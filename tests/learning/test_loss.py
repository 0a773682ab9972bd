"""The loss's parts against hand and brute-force computations."""

from __future__ import annotations

import math
import random

import pytest
import torch

from arlas.choices import WeightBound, WeightLevel
from arlas.config import AlgoConfig
from arlas.learning.loss import (
    add_sums,
    aggregate,
    grpo_loss,
    importance_weights,
    kl_estimate,
    policy_loss,
    summarize,
)
from arlas.types import ConfigurationError


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 2.0, -2.6, 0.0),  # clipped above: 1.3 · 2
        (1.5, -2.0, 3.0, 2.0),  # worse than the clip: keeps its gradient
        (0.5, -2.0, 1.8, 0.0),  # clipped below: 0.9 · -2
        (0.5, 2.0, -1.0, -2.0),
    ],
)
def test_clipped_loss_by_hand(ratio: float, advantage: float, loss: float, slope: float) -> None:
    """-min(R·A, clip(R, 0.9, 1.3)·A) and its slope in R, worked out by hand."""
    r = torch.tensor([ratio], requires_grad=True)
    found = policy_loss(r, torch.tensor([advantage]), eps_low=0.1, eps_high=0.3)
    assert found.item() == pytest.approx(loss)
    found.sum().backward()
    assert r.grad is not None
    assert r.grad.item() == pytest.approx(slope)


@pytest.mark.parametrize("name", ["token_mean", "sequence_mean", "constant"])
def test_aggregation_by_brute_force(name: str) -> None:
    """Each name's weights reproduce its definition over nested lists of token losses."""
    rng = random.Random(0)
    losses = [[rng.random() for _ in range(n)] for n in (3, 1, 7)]
    expected = {
        "token_mean": sum(map(sum, losses)) / 11,
        "sequence_mean": sum(sum(e) / len(e) for e in losses) / 3,
        "constant": sum(sum(e) / 20 for e in losses) / 3,
    }
    how = aggregate(name, [len(e) for e in losses], constant_length=20)
    found = sum(w * sum(e) for w, e in zip(how.weights, losses, strict=True)) / how.denominator
    assert found == pytest.approx(expected[name])


def test_unknown_names_are_refused() -> None:
    """A misspelled name must not train something else."""
    one = torch.zeros(1)
    with pytest.raises(ConfigurationError, match="kl_estimator"):
        kl_estimate("k4", one, one)
    with pytest.raises(ConfigurationError, match="aggregation"):
        aggregate("mean", [1], 1)


def test_whole_loss_and_metrics_against_plain_python() -> None:
    """Every term and every metric, token by token with math.exp alone."""
    rng = random.Random(1)
    n, algo = 9, AlgoConfig(beta=0.3, kl_estimator="k3", importance_cap=1.5)
    lp, old, sampler, ref, adv, weight = (
        [rng.uniform(-2, 0) for _ in range(n)] if i != 5 else [rng.random() for _ in range(n)]
        for i in range(6)
    )
    adv = [a + 1.0 for a in adv]
    total, weights, engine, ratios, kls, clipped = 0.0, [], [], [], [], 0
    for i in range(n):
        r, e = math.exp(lp[i] - old[i]), math.exp(old[i] - sampler[i])
        kl = math.exp(ref[i] - lp[i]) - 1 + lp[i] - ref[i]
        w = min(e, 1.5)
        term = -min(r * adv[i], min(max(r, 0.9), 1.3) * adv[i]) + 0.3 * kl
        total += weight[i] * w * term / 5.0
        clipped += r > 1.3 if adv[i] > 0 else r < 0.9
        weights, engine = [*weights, w], [*engine, e]
        ratios, kls = [*ratios, r], [*kls, kl]
    parts = [torch.tensor(x) for x in (lp, old, sampler, ref, adv, weight)]
    loss, sums = grpo_loss(*parts, denominator=5.0, algo=algo)
    assert loss.item() == pytest.approx(total, rel=1e-5)
    # In two parts, as two micro-batches would.
    halves = [grpo_loss(*(p[s] for p in parts), 5.0, algo)[1] for s in (slice(0, 4), slice(4, n))]
    for found in (summarize(sums, 1), summarize(add_sums(*halves), 1)):
        assert found["loss"] == pytest.approx(total, rel=1e-5)
        assert found["kl"] == pytest.approx(sum(kls) / n, rel=1e-5)
        assert found["ratio_mean"] == pytest.approx(sum(ratios) / n, rel=1e-5)
        assert found["ratio_max"] == pytest.approx(max(ratios), rel=1e-5)
        assert found["engine_ratio_mean"] == pytest.approx(sum(engine) / n, rel=1e-5)
        assert found["engine_ratio_max"] == pytest.approx(max(engine), rel=1e-5)
        assert found["clip_share"] == pytest.approx(clipped / n)
        assert found["capped_share"] == pytest.approx(sum(e > 1.5 for e in engine) / n)
        ess = sum(weights) ** 2 / sum(w * w for w in weights) / n
        assert found["ess"] == pytest.approx(ess, rel=1e-5)
        assert found["entropy"] == pytest.approx(-sum(lp) / n, rel=1e-5)


def test_importance_weights_survive_absurd_log_probabilities() -> None:
    """A token that the engine calls impossible gives the cap, not infinity; cap 0 switches off."""
    old, sampler = torch.tensor([-1.0, -500.0]), torch.tensor([-1e4, -1.0])
    assert importance_weights(old, sampler, 2.0).tolist() == pytest.approx([2.0, 0.0], abs=1e-6)
    assert importance_weights(old, sampler, 0.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("bound", WeightBound)
@pytest.mark.parametrize("level", WeightLevel)
def test_importance_weights_by_plain_python(level: WeightLevel, bound: WeightBound) -> None:
    """Tokens: their ratio; sequences: the product over the segment; then cut at the cap or set to 0 outside."""
    rng = random.Random(3)
    segments = [0, 0, 2, 1, 1, 1, 2, 3]  # of one segment, neighbours or not
    old, sampler = ([rng.uniform(-0.5, 0) for _ in segments] for _ in range(2))
    expected = []
    for i, of in enumerate(segments):
        members = [j for j, s in enumerate(segments) if s == of]
        ratios = [math.exp(old[j] - sampler[j]) for j in members]
        w = math.prod(ratios) if level is WeightLevel.SEQUENCE else math.exp(old[i] - sampler[i])
        if bound is WeightBound.TRUNCATE:
            expected.append(min(w, 1.3))
        else:
            expected.append(w if 1 / 1.3 <= w <= 1.3 else 0.0)
    found = importance_weights(
        torch.tensor(old, requires_grad=True),
        torch.tensor(sampler),
        1.3,
        level,
        bound,
        torch.tensor(segments),
    )
    assert found.tolist() == pytest.approx(expected, rel=1e-5)
    assert not found.requires_grad
    if bound is WeightBound.MASK:
        assert 0 < sum(w == 0.0 for w in expected) < len(segments)


def test_masked_tokens_teach_nothing_and_are_counted() -> None:
    """No gradient from them, not even of the KL; their share is logged, and all masked is no error."""
    algo = AlgoConfig(importance_bound=WeightBound.MASK, importance_cap=2.0, beta=0.5)
    lp = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    old, ref = torch.tensor([-1.0] * 3), torch.tensor([-2.0] * 3)
    sampler = torch.tensor([-1.0, -2.5, 0.5])
    one = torch.ones(3)
    loss, sums = grpo_loss(lp, old, sampler, ref, one, one, 3.0, algo)
    loss.backward()
    assert lp.grad is not None
    assert lp.grad[0] != 0.0
    assert lp.grad[1:].tolist() == [0.0, 0.0]
    found = summarize(sums, 1)
    assert found["masked_share"] == pytest.approx(2 / 3)
    assert found["capped_share"] == 0.0
    assert found["ess"] == pytest.approx(1 / 3)
    nothing = grpo_loss(lp[1:], old[1:], sampler[1:], ref[1:], one[1:], one[1:], 3.0, algo)[1]
    assert summarize(nothing, 1)["ess"] == 0.0


def test_weights_of_sequences_need_to_know_them() -> None:
    """Without the segments' numbers the weight would be that of the whole micro-batch."""
    one = torch.zeros(2)
    with pytest.raises(ValueError, match="segment_N"):
        importance_weights(one, one, 2.0, WeightLevel.SEQUENCE)
