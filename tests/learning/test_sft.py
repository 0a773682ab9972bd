"""Imitation against the formula of the paper, and what it does to an adapter."""

from __future__ import annotations

import random
from itertools import pairwise

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

from arlas.demonstrations import SFTConfig
from arlas.learning.batch import Sample, micro_batches
from arlas.learning.learner import Learner
from arlas.learning.sft import _loss, _split, train_sft
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


# --- validation and early stop ----------------------------------------------------------------------------


def _odd_one_out(count: int = 8) -> list[list[Segment]]:
    """Episodes that have nothing in common: what is learned from some makes the others less likely."""
    made = []
    for i in range(count):
        rng = random.Random(i)
        made.append([segment([(tokens(rng, 20), False), (tokens(rng, 6), True)])])
    return made


def _held_nll(learner: Learner, cfg: SFTConfig) -> float:
    """The mean over held-out turns of the mean over tokens of -log π, one segment at a time."""
    learner.model.set_adapter("agent")
    held = _split(_odd_one_out(), cfg)[1]
    with torch.no_grad():
        turns = [naive_logprobs(learner, s, 1.0).mean() for e in held for s in e]
    return -float(torch.stack(turns).mean())


def test_the_best_adapter_on_held_out_episodes_is_kept() -> None:
    """Measured at step 0 and every third step against brute force; the best weights are the ones that stay."""
    cfg = SFTConfig(lr=3e-2, beta=0.0, batch_size=2, epochs=6, eval_share=0.5, eval_every=3)
    learner = make_learner()
    before = _held_nll(learner, cfg)
    weights: dict[int, dict[str, torch.Tensor]] = {}
    rows: list[dict[str, float]] = []

    def note(done: int, total: int, metrics: dict[str, float]) -> None:
        weights[done] = {n: p.clone() for n, p in learner.parameters(Seat.AGENT).items()}

    metrics = train_sft(learner, Seat.AGENT, _odd_one_out(), cfg, note, rows.append)
    assert [int(r["step"]) for r in rows] == list(range(13))
    measured = {int(r["step"]): r["eval_nll"] for r in rows if "eval_nll" in r}
    assert sorted(measured) == [0, 3, 6, 9, 12]
    assert measured[0] == pytest.approx(before, rel=1e-4)
    assert rows[0]["eval_kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[-1]["eval_kl"] > 0.0
    best = min(measured, key=lambda step: measured[step])
    assert measured[12] > measured[best]
    assert metrics["best_step"] == best
    assert metrics["eval_nll"] == measured[best] == pytest.approx(_held_nll(learner, cfg), rel=1e-4)
    if best:
        for name, parameter in learner.parameters(Seat.AGENT).items():
            assert torch.equal(parameter, weights[best][name])
    assert metrics["steps"] == 12


def test_a_run_that_gets_better_keeps_its_last_adapter() -> None:
    """Held-out episodes like the training ones: the loss falls, and nothing is taken back."""
    alike = [_episodes(1)[0]] * 6
    cfg = SFTConfig(lr=1e-2, batch_size=6, epochs=3, eval_share=0.5, eval_every=1, patience=1)
    learner = make_learner()
    rows: list[dict[str, float]] = []
    metrics = train_sft(learner, Seat.AGENT, alike, cfg, record=rows.append)
    losses = [r["eval_loss"] for r in rows]
    assert all(a > b for a, b in pairwise(losses))
    assert (metrics["best_step"], metrics["steps"]) == (len(rows) - 1, len(rows) - 1)


@pytest.mark.parametrize("patience", [1, 2])
def test_training_stops_when_patience_is_used_up(patience: int) -> None:
    """So many measurements without a new best, and not one step more."""
    cfg = SFTConfig(
        lr=1e-1, beta=0.0, batch_size=2, epochs=20, eval_share=0.5, eval_every=2, patience=patience
    )
    rows: list[dict[str, float]] = []
    metrics = train_sft(make_learner(), Seat.AGENT, _odd_one_out(), cfg, record=rows.append)
    losses = {int(r["step"]): r["eval_loss"] for r in rows if "eval_loss" in r}
    best, last = int(metrics["best_step"]), max(losses)
    assert last == best + 2 * patience < 40
    assert all(losses[step] >= losses[best] for step in losses if step > best)
    assert metrics["eval_loss"] == losses[best]


def test_measuring_changes_no_step() -> None:
    """The training losses are those of a run that measures only at the end."""
    cfg = SFTConfig(lr=1e-2, batch_size=2, epochs=2, eval_share=0.5)
    found = []
    for every in (0, 1):
        rows: list[dict[str, float]] = []
        own = SFTConfig(**(vars(cfg) | {"eval_every": every}))
        train_sft(make_learner(), Seat.AGENT, _odd_one_out(), own, record=rows.append)
        found.append([r["loss"] for r in rows if "loss" in r])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"patience": 2}, r"sft\.patience counts measurements"),
        ({"eval_every": 2}, r"set sft\.eval_share above 0"),
        ({"eval_every": -1}, r"must not be negative"),
        ({"eval_every": 2, "eval_share": 0.1}, r"holds out no turn of 4 episodes"),
    ],
)
def test_switches_that_contradict_each_other(changes: dict[str, float], told: str) -> None:
    """Refused before the first step."""
    with pytest.raises(ConfigurationError, match=told):
        train_sft(make_learner(), Seat.AGENT, _episodes(), SFTConfig(**changes))  # type: ignore[arg-type]


# --- packing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", TINY)
def test_packing_changes_no_loss_and_no_gradient(model: str) -> None:
    """Unrelated turns in one row against each for itself, with KL, past Gemma's window of 16 too."""
    episodes = [
        *_odd_one_out(),
        *_episodes(),
        [segment([(list(range(90)), False), ([7, 8], True)])],
    ]
    segments = [s for e in episodes for s in e]
    caught = []
    for packing in (False, True):
        learner = make_learner(model, max_grad_norm=1e9)
        stir(learner)
        value, gradient = _brute_force(learner, segments, beta=0.7)
        catcher = CaughtGradients(learner, Seat.AGENT)
        cfg = SFTConfig(beta=0.7, packing=packing, micro_batch_tokens=400)
        metrics = train_sft(learner, Seat.AGENT, episodes, cfg)
        assert metrics["loss"] == pytest.approx(value, rel=1e-4)
        for name, expected in gradient.items():
            torch.testing.assert_close(catcher.steps[0][name], expected, atol=1e-5, rtol=1e-4)
        caught.append(metrics)
    for name in ("loss", "nll", "kl", "turns", "tokens", "grad_norm"):
        assert caught[1][name] == pytest.approx(caught[0][name], rel=1e-4), name


def test_packing_without_a_mask_is_refused() -> None:
    """A model whose attention takes no mask of ours cannot pack."""
    learner = make_learner()
    learner.share = 0.0
    with pytest.raises(ConfigurationError, match=r"sft\.packing"):
        train_sft(learner, Seat.AGENT, _episodes(), SFTConfig(packing=True))
