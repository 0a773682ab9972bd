"""Invariant 9: KL to the frozen SFT adapter, 0 at the first step, with the exact gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learning_cases import groups_sharing_prompts, make_learner, stir

from arlas.config import InitConfig
from arlas.learning.loss import kl_estimate
from arlas.types import Seat


def _categorical(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(7, generator=generator, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(7, generator=generator, dtype=torch.float64).log_softmax(-1)
    return logits, ref


def _gradient(value: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(value, logits)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["k1", "k2", "k3", "k1+", "k3+"])
def test_invariant_9_gradient_of_each_estimator(name: str, seed: int) -> None:
    """The expected gradient over all 7 tokens is the exact categorical one that the docs promise.

    k2, k1+ and k3+: the reverse KL's. k3: the forward KL's. k1: nothing at all.
    """
    logits, ref = _categorical(seed)
    logp = logits.log_softmax(-1)
    p = logp.exp().detach()  # tokens are drawn on-policy; drawing carries no gradient
    found = _gradient((p * kl_estimate(name, logp, ref)).sum(), logits)
    logp = logits.log_softmax(-1)
    reverse = _gradient((logp.exp() * (logp - ref)).sum(), logits)
    logp = logits.log_softmax(-1)
    forward = _gradient((ref.exp() * (ref - logp)).sum(), logits)
    expected = {"k1": torch.zeros_like(reverse), "k3": forward}.get(name, reverse)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-9)
    assert (reverse - forward).abs().max() > 1e-3  # the two can be told apart


@pytest.mark.parametrize("name", ["k1", "k3", "k1+", "k3+"])
def test_invariant_9_unbiased_values(name: str) -> None:
    """Their expected value is the KL; k3 is never negative."""
    logits, ref = _categorical(0)
    logp = logits.log_softmax(-1)
    values = kl_estimate(name, logp, ref)
    exact = (logp.exp() * (logp - ref)).sum()
    torch.testing.assert_close((logp.exp() * values).sum(), exact)
    assert "k3" not in name or bool((values >= 0).all())


def test_invariant_9_default_estimator_has_the_right_gradient() -> None:
    """The config's default is one of those whose gradient is the reverse KL's."""
    assert make_learner().algo.kl_estimator in ("k2", "k1+", "k3+")


@pytest.mark.parametrize("start", ["fresh", "folder"])
def test_invariant_9_kl_is_zero_at_the_first_step_only(start: str, tmp_path: Path) -> None:
    """Exactly 0 from a fresh adapter and from an SFT folder; above 0 after a step; reference unmoved."""
    init = InitConfig()
    if start == "folder":
        before = make_learner(seats=[Seat.AGENT])
        stir(before)
        before.save_adapter(Seat.AGENT, tmp_path / "sft")
        init = InitConfig(agent=str(tmp_path / "sft"))
    learner = make_learner(init=init, seats=[Seat.AGENT])
    groups = groups_sharing_prompts()
    one = groups[0].episodes[0].segments[Seat.AGENT][0]
    reference = learner.logprobs(Seat.AGENT, one, reference=True)
    assert reference == learner.logprobs(Seat.AGENT, one)
    assert learner.update(Seat.AGENT, groups, 0)["kl"] == 0.0
    assert learner.update(Seat.AGENT, groups, 1)["kl"] > 0.0
    assert learner.logprobs(Seat.AGENT, one, reference=True) == reference
    assert learner.logprobs(Seat.AGENT, one) != reference


def test_invariant_9_each_seat_has_its_own_reference(tmp_path: Path) -> None:
    """The attacker's KL is to the attacker's SFT adapter, the agent's to the agent's."""
    paths = {}
    for seed, seat in enumerate((Seat.AGENT, Seat.ATTACKER)):
        made = make_learner(seats=[seat])
        stir(made, seed=seed)
        made.save_adapter(seat, tmp_path / seat.value)
        paths[seat.value] = str(tmp_path / seat.value)
    learner = make_learner(init=InitConfig(**paths))
    one = groups_sharing_prompts()[0].episodes[0].segments[Seat.AGENT][0]
    found = {seat: learner.logprobs(seat, one, reference=True) for seat in learner.seats}
    assert found[Seat.AGENT] != found[Seat.ATTACKER]
    for seat in learner.seats:
        assert found[seat] == learner.logprobs(seat, one)
