"""Invariant 3: the same temperature in both log-probabilities; weights capped, detached and logged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from learning_cases import (
    TEMPERATURE,
    TINY,
    episode,
    group,
    groups_sharing_prompts,
    make_learner,
    naive_logprobs,
    stir,
)
from transformers import GraniteConfig, GraniteForCausalLM

from arlas.config import AlgoConfig
from arlas.learning.batch import Sample, micro_batches
from arlas.learning.learner import Learner
from arlas.learning.loss import grpo_loss
from arlas.types import ConfigurationError, Episode, Seat, Segment


@pytest.mark.parametrize("model", TINY)
def test_invariant_3_log_probabilities_are_those_of_the_sampler_temperature(model: str) -> None:
    """log_softmax(logits / T) of the full model, T the sampler's; nothing of generation_config.json enters."""
    learner = make_learner(model)
    stir(learner)
    for one in (
        s for g in groups_sharing_prompts() for e in g.episodes for s in e.segments[Seat.AGENT]
    ):
        for seat in learner.seats:
            found = torch.tensor(learner.logprobs(seat, one))
            with learner.using(seat), torch.no_grad():
                torch.testing.assert_close(
                    found, naive_logprobs(learner, one), atol=1e-5, rtol=1e-5
                )
                other = naive_logprobs(learner, one, temperature=1.0)
            assert TEMPERATURE != 1.0
            assert (found - other).abs().max() > 1e-2


def test_invariant_3_a_soft_cap_on_logits_is_applied_before_the_temperature() -> None:
    """Gemma's final cap changes the log-probabilities, and the gradient goes through it."""
    learner = make_learner("tiny-gemma3", beta=0.0, importance_cap=0.0)
    stir(learner)
    one = groups_sharing_prompts()[0].episodes[0].segments[Seat.AGENT][0]
    uncapped = learner.logprobs(Seat.AGENT, one)
    learner.base.config.final_logit_softcapping = 1.5
    with torch.no_grad():
        expected = naive_logprobs(learner, one)
    torch.testing.assert_close(
        torch.tensor(learner.logprobs(Seat.AGENT, one)), expected, atol=1e-5, rtol=1e-5
    )
    assert (torch.tensor(uncapped) - expected).abs().max() > 1e-3
    named = learner.parameters(Seat.AGENT)
    wanted = torch.autograd.grad(naive_logprobs(learner, one).sum(), list(named.values()))
    (batch,) = micro_batches([Sample(one, 1.0)], 1000)
    found = torch.autograd.grad(learner._logprobs(batch).sum(), list(named.values()))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_invariant_3_weights_are_capped_and_detached() -> None:
    """The gradient is that of weights held constant, and no weight exceeds the cap."""
    logprobs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    sampler = torch.tensor([-1.1, -4.0, -2.5])
    advantages, ones = torch.tensor([1.0, -1.0, 2.0]), torch.ones(3)
    algo = AlgoConfig(beta=0.0, importance_cap=2.0)
    loss, sums = grpo_loss(logprobs, logprobs.detach(), sampler, None, advantages, ones, 3.0, algo)
    loss.backward()
    weights = torch.exp(logprobs.detach() - sampler).clamp(max=2.0)
    assert weights[1] == 2.0
    torch.testing.assert_close(logprobs.grad, -advantages * weights / 3.0)
    assert sums["capped"] == 1.0


def test_invariant_3_agreement_is_logged() -> None:
    """With the trainer's own log-probabilities as the sampler's, every ratio and the ESS are 1."""
    learner = make_learner()
    groups = [
        group([episode(e.index, _told(learner, e), e.rewards[Seat.AGENT]) for e in g.episodes])
        for g in groups_sharing_prompts()
    ]
    metrics = learner.update(Seat.AGENT, groups, seed=0)
    for name in ("ratio_mean", "ratio_max", "engine_ratio_mean", "engine_ratio_max", "ess"):
        assert metrics[name] == pytest.approx(1.0, abs=1e-4)
    assert metrics["clip_share"] == metrics["capped_share"] == 0.0


def test_invariant_3_disagreement_is_logged() -> None:
    """Sampler log-probabilities that come from no model show in the ratios, the ESS and the capped share."""
    learner = make_learner(importance_cap=1.5)
    metrics = learner.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
    assert metrics["engine_ratio_max"] > 1.5
    assert metrics["ess"] < 0.999
    assert 0.0 < metrics["capped_share"] < 1.0


def _told(learner: Learner, e: Episode) -> Iterator[Segment]:
    """The segments of an episode with the learner's own log-probabilities in place of the sampler's."""
    for s in e.segments[Seat.AGENT]:
        values = iter(learner.logprobs(Seat.AGENT, s))
        yield dataclasses.replace(
            s, logprobs=tuple(next(values) if m else 0.0 for m in s.action_mask)
        )


def test_invariant_3_a_model_with_logits_of_its_own_is_refused(tmp_path: Path) -> None:
    """Granite divides its logits by a number of its config: found at start, not trained wrongly."""
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 300}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    for scaling in (1.0, 8.0):
        config = GraniteConfig(**shape, **heads, logits_scaling=scaling, initializer_range=0.5)
        GraniteForCausalLM(config).save_pretrained(tmp_path / str(scaling))
    make_learner(str(tmp_path / "1.0"))
    with pytest.raises(ConfigurationError, match="Granite"):
        make_learner(str(tmp_path / "8.0"))
