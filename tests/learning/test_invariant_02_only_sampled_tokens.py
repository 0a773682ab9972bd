"""Invariant 2: only sampled tokens carry loss; the gradient through everything else is exactly zero."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch
from learning_cases import TINY, episode, group, make_learner, naive_logprobs, segment, stir, tokens
from learning_cases import CaughtGradients as Caught

from arlas.learning.batch import Sample, micro_batches
from arlas.learning.learner import Learner
from arlas.types import Group, Seat, Segment


def _segments(seed: int = 0) -> list[Segment]:
    """Two turns with an observation between them, a sampled stop token, and one the engine added."""
    rng = random.Random(seed)
    prompt = tokens(rng, 24)
    return [
        segment(
            [
                (prompt, False),
                (tokens(rng, 4), True),  # its last token is the sampled stop token
                (tokens(rng, 5), False),
                (tokens(rng, 3), True),
                ([7], False),  # a stop token that the engine added
            ]
        )
        for _ in range(3)
    ]


def _groups(segments: list[Segment]) -> list[Group]:
    return [group([episode(i, [s], float(i)) for i, s in enumerate(segments)])]


@pytest.mark.parametrize("model", TINY)
def test_invariant_2_gradient_reaches_only_places_that_predict_sampled_tokens(model: str) -> None:
    """d loss / d hidden state of the body is zero in every other row, and nowhere zero in these."""
    learner = make_learner(model, beta=0.0)
    stir(learner)
    kept: list[torch.Tensor] = []

    def tap(_module: object, _inputs: object, output: object) -> None:
        hidden = output.last_hidden_state  # type: ignore[attr-defined]
        if hidden.requires_grad:
            hidden.retain_grad()
            kept.append(hidden)

    learner.base.get_decoder().register_forward_hook(tap)
    learner.share = 0.0  # one row a segment, so that places are easy to name
    Caught(learner, Seat.AGENT)
    segments = _segments()
    learner.update(Seat.AGENT, _groups(segments), seed=0)
    assert len(kept) == 1
    assert kept[0].grad is not None
    touched = kept[0].grad.abs().sum(-1) > 0
    for row, one in zip(touched, sorted(segments, key=lambda s: s.token_ids), strict=True):
        expected = [one.action_mask[i + 1] for i in range(len(row))]
        # The middle reward of the group has advantage 0, and β is 0.
        advantage_zero = one is segments[1]
        assert row.tolist() == ([False] * len(row) if advantage_zero else expected)


def test_invariant_2_the_loss_does_not_know_other_targets() -> None:
    """Another engine-added stop token, or other log-probabilities beside the mask, change nothing at all."""
    outcomes = []
    for last, noise in ((7, 0.0), (9, -3.0)):
        learner = make_learner()
        stir(learner)
        caught = Caught(learner, Seat.AGENT)
        segments = [
            dataclasses.replace(
                s,
                token_ids=(*s.token_ids[:-1], last),
                logprobs=tuple(
                    x if m else noise for x, m in zip(s.logprobs, s.action_mask, strict=True)
                ),
            )
            for s in _segments()
        ]
        metrics = learner.update(Seat.AGENT, _groups(segments), seed=0)
        outcomes.append((metrics, caught.steps[0]))
    assert outcomes[0][0] == outcomes[1][0]
    for name, gradient in outcomes[0][1].items():
        assert torch.equal(gradient, outcomes[1][1][name])


def test_invariant_2_a_sampled_stop_token_is_trained() -> None:
    """The action tokens of a batch are the True ones of the masks, the sampled stop token among them."""
    one = _segments()[0]
    (batch,) = micro_batches([Sample(one, 1.0)], 1000)
    wanted = [t for t, m in zip(one.token_ids, one.action_mask, strict=True) if m]
    assert batch.targets_N.tolist() == wanted
    assert one.token_ids[27] in batch.targets_N.tolist()  # the stop token that ends the first turn


def test_invariant_2_an_action_without_a_prompt_is_refused() -> None:
    """Nothing predicts the first token of a segment, so it cannot have been sampled."""
    with pytest.raises(ValueError, match="first token"):
        micro_batches([Sample(segment([([1, 2], True)]), 1.0)], 100)


@pytest.mark.parametrize("model", TINY)
def test_invariant_2_whole_gradient_is_that_of_the_action_tokens(model: str) -> None:
    """`update`'s adapter gradient equals autograd through the full model on action tokens alone."""
    learner = make_learner(model, beta=0.0, importance_cap=0.0)
    stir(learner)
    caught = Caught(learner, Seat.AGENT)
    segments = _segments()
    learner.algo.max_grad_norm = float("inf")
    learner.update(Seat.AGENT, _groups(segments), seed=0)
    for name, expected in _naive(learner, segments).items():
        torch.testing.assert_close(caught.steps[0][name], expected, atol=1e-5, rtol=1e-4)


def _naive(learner: Learner, segments: list[Segment]) -> dict[str, torch.Tensor]:
    count = sum(sum(s.action_mask) for s in segments)
    learner.model.set_adapter("agent")
    loss = torch.zeros(())
    for s, advantage in zip(segments, (-(1.5**0.5), 0.0, 1.5**0.5), strict=True):
        loss = loss - advantage * naive_logprobs(learner, s).sum() / count
    named = learner.parameters(Seat.AGENT)
    found = torch.autograd.grad(loss, list(named.values()))
    return dict(zip(named, found, strict=True))
