"""Imitation against the formula of the paper, and what it does to an adapter."""

from __future__ import annotations

import random

import pytest
import torch
from learning_cases import (
    TINY,
    CaughtGradients,
    make_learner,
    naive_logprobs,
    segment,
    stir,
    tokens,
)

from arlas.learning.batch import Sample, micro_batches
from arlas.learning.learner import Learner
from arlas.learning.sft import SFTConfig, _loss, train_sft
from arlas.types import ConfigurationError, Seat, Segment


def _episodes(count: int = 4, seed: int = 0) -> list[list[Segment]]:
    """Each has a conversation of two turns and a turn apart, of different lengths."""
    rng = random.Random(seed)
    prompt = tokens(rng, 30)
    return [
        [
            segment(
                [(prompt, False), (tokens(rng, 2 + i), True), ([3], False), (tokens(rng, 7), True)]
            ),
            segment([(tokens(rng, 12), False), (tokens(rng, 3), True), ([9], False)]),
        ]
        for i in range(count)
    ]


def _turns(one: Segment) -> list[list[int]]:
    """Positions of the sampled tokens of each turn."""
    turns: list[list[int]] = []
    for i, sampled in enumerate(one.action_mask):
        if sampled and not one.action_mask[i - 1]:
            turns.append([])
        if sampled:
            turns[-1].append(i)
    return turns


def _brute_force(learner: Learner, segments: list[Segment], beta: float) -> tuple[float, dict]:
    """The mean over turns of the mean over tokens of -log π + β · Σ_v π_v (log π_v - log π_ref,v)."""
    total, count = torch.zeros(()), 0
    learner.model.set_adapter("agent")
    for one in segments:
        ids = torch.tensor([one.token_ids])
        with torch.no_grad(), learner.model.disable_adapter():
            ref = learner.base(input_ids=ids).logits[0].log_softmax(-1)
        learner.model.set_adapter("agent")
        log_p = learner.base(input_ids=ids).logits[0].log_softmax(-1)
        for turn in _turns(one):
            terms = [
                -log_p[i - 1, one.token_ids[i]]
                + beta * (log_p[i - 1].exp() * (log_p[i - 1] - ref[i - 1])).sum()
                for i in turn
            ]
            total, count = total + torch.stack(terms).mean(), count + 1
    named = learner.parameters(Seat.AGENT)
    gradient = torch.autograd.grad(total / count, list(named.values()))
    return total.item() / count, dict(zip(named, gradient, strict=True))


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("model", TINY)
def test_loss_and_gradient_are_those_of_the_paper(model: str, softcap: float | None) -> None:
    """Cross-entropy and exact KL, each turn weighted with 1/|a|, also split over micro-batches."""
    learner = make_learner(model, max_grad_norm=1e9)
    if softcap and model != "tiny-gemma3":
        softcap = None  # only Gemma's own forward pass, the reference here, knows it
    learner.base.config.final_logit_softcapping = softcap
    stir(learner)
    episodes = _episodes()
    value, gradient = _brute_force(learner, [s for e in episodes for s in e], beta=0.7)
    for budget in (10_000, 50):
        caught = CaughtGradients(learner, Seat.AGENT)
        cfg = SFTConfig(beta=0.7, micro_batch_tokens=budget)
        metrics = train_sft(learner, Seat.AGENT, episodes, cfg)
        assert metrics["loss"] == pytest.approx(value, rel=1e-4)
        assert (metrics["turns"], metrics["steps"]) == (12, 1)
        for name, expected in gradient.items():
            torch.testing.assert_close(caught.steps[0][name], expected, atol=1e-5, rtol=1e-4)


def test_imitation_makes_demonstrations_likelier_and_kl_holds_it_back() -> None:
    """The likelihood rises with steps; with a heavy KL weight the adapter stays nearer to the base."""
    found = {}
    for beta in (0.0, 5.0):
        learner = make_learner()
        cfg = SFTConfig(lr=1e-2, beta=beta, epochs=8, batch_size=6)
        before = naive_logprobs(learner, _episodes()[0][0]).mean().item()
        calls: list[tuple[int, int]] = []

        def note(
            done: int, total: int, _: dict[str, float], calls: list[tuple[int, int]] = calls
        ) -> None:
            calls.append((done, total))

        metrics = train_sft(learner, Seat.AGENT, _episodes(), cfg, note)
        learner.model.set_adapter("agent")
        after = naive_logprobs(learner, _episodes()[0][0]).mean().item()
        assert calls == [(i, 16) for i in range(1, 17)]
        assert metrics["steps"] == 16
        assert after - before > 1.0
        (batch,) = micro_batches([Sample(s, 0.0) for e in _episodes() for s in e], 10_000)
        found[beta] = float(_loss(learner, Seat.AGENT, batch, 1.0)[1]["kl"])
    assert found[5.0] < 0.5 * found[0.0]


def test_held_out_episodes_and_early_end() -> None:
    """A share of the episodes is only measured; max_steps ends early; the other seat is untouched."""
    learner = make_learner()
    other = {n: p.clone() for n, p in learner.parameters(Seat.ATTACKER).items()}
    cfg = SFTConfig(lr=1e-2, batch_size=3, epochs=5, max_steps=4, eval_share=0.5)
    metrics = train_sft(learner, Seat.AGENT, _episodes(), cfg)
    assert metrics["steps"] == 4
    assert metrics["eval_turns"] == 6
    assert metrics["eval_nll"] > metrics["nll"]
    assert all(torch.equal(other[n], p) for n, p in learner.parameters(Seat.ATTACKER).items())


def test_nothing_to_imitate_is_an_error() -> None:
    """No turn at all, or nonsense in the config, dies with a clear message."""
    learner = make_learner()
    for episodes in ([], [[segment([([1, 2, 3], False)])]]):
        with pytest.raises(ConfigurationError, match="no demonstrated turns"):
            train_sft(learner, Seat.AGENT, episodes, SFTConfig())
    with pytest.raises(ConfigurationError, match=r"sft\.lr"):
        train_sft(learner, Seat.AGENT, _episodes(), SFTConfig(lr=0.0))
