"""Imitation: the warm start of both seats (ARLAS section 3.2).

**Packing** (``sft.packing``) puts turns that have nothing in common into one row, up to the longest row, with an attention
mask that keeps them apart: little padding, and the same losses and gradients to rounding. It is off by default: rows are
sorted by length before they are padded, which leaves little to win, while a masked square costs more than plain causal
attention. Measured on a CPU, 0.95 to 0.99 of the speed without (``scripts/bench/README.md``); on a GPU not measured.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from arlas.demonstrations import SFTConfig
from arlas.learning.batch import Sample, TrainBatch, even_parts, micro_batches
from arlas.learning.learner import Learner
from arlas.learning.logprobs import action_logprobs_and_kl, hidden_states
from arlas.learning.loss import Sums, add_sums
from arlas.types import ConfigurationError, Seat, Segment


def train_sft(
    learner: Learner,
    seat: Seat,
    episodes: Sequence[Sequence[Segment]],
    cfg: SFTConfig,
    progress: Callable[[int, int, dict[str, float]], None] | None = None,
    record: Callable[[dict[str, float]], None] | None = None,
) -> dict[str, float]:
    """Trains a seat's adapter on demonstrated turns, given as segments by episode.

    L = E[1/|a| Σ_i (-log π(a_i) + β · KL(π ‖ π_base) at i)], the mean over turns a, at temperature 1 and with
    the exact KL over the vocabulary. With ``eval_every`` the adapter that had the lowest loss on held-out
    episodes is the one that stays, which may be the one that came in. ``progress`` is called with (steps done, steps
    in all, metrics), ``record`` with a row of the learning curve. Raises `ConfigurationError` if there is
    nothing to train on or nothing to measure, or if the model cannot pack.
    """
    cfg.validate()
    if cfg.packing and not learner.share:
        raise ConfigurationError(
            "sft.packing: this model's attention takes no mask; set sft.packing=false"
        )
    train, held = _split(episodes, cfg)
    epochs = [_batches(train, cfg.batch_size, cfg.seed + i) for i in range(cfg.epochs)]
    batches = [batch for epoch in epochs for batch in epoch]
    if not batches:
        raise ConfigurationError("no demonstrated turns to train on: every action mask is empty")
    batches = batches[: cfg.max_steps or None]
    best = _Best(learner.parameters(seat))
    metrics: dict[str, float] = {}
    if cfg.eval_every:
        measured = _evaluate(learner, seat, held, cfg)
        if not measured:
            raise ConfigurationError(
                f"sft.eval_share={cfg.eval_share} holds out no turn of {len(episodes)} episodes: raise it"
            )
        best.see(0, measured)
        if record is not None:
            record({"step": 0.0} | measured)
    for done, samples in enumerate(batches, start=1):
        micros = learner.mine(_micros(samples, learner, cfg))
        sums, norm = learner.step(
            seat, micros, lambda batch: _loss(learner, seat, batch, cfg.beta), lr=cfg.lr
        )
        metrics = _means(sums) | {"grad_norm": norm, "steps": float(done)}
        row = {"step": float(done)} | metrics
        if cfg.eval_every and (done % cfg.eval_every == 0 or done == len(batches)):
            measured = _evaluate(learner, seat, held, cfg)
            best.see(done, measured)
            row |= measured
        if record is not None:
            record(row)
        if progress is not None:
            progress(done, len(batches), metrics)
        if cfg.patience and best.since >= cfg.patience:
            break
    if not cfg.eval_every:
        return metrics | _evaluate(learner, seat, held, cfg)
    best.restore()
    return metrics | best.metrics | {"best_step": float(best.step)}


class _Best:
    """The adapter with the lowest held-out loss so far; ``since`` counts the measurements behind it."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self.step, self.since = 0, 0
        self.metrics: dict[str, float] = {}
        self._parameters = parameters
        self._weights: dict[str, Tensor] = {}

    def see(self, step: int, metrics: dict[str, float]) -> None:
        self.since += 1
        if not self.metrics or metrics["eval_loss"] < self.metrics["eval_loss"]:
            self.step, self.since, self.metrics = step, 0, metrics
            self._weights = {n: p.detach().clone() for n, p in self._parameters.items()}

    def restore(self) -> None:
        with torch.no_grad():
            for name, weights in self._weights.items():
                self._parameters[name].copy_(weights)


def _micros(samples: Sequence[Sample], learner: Learner, cfg: SFTConfig) -> list[TrainBatch]:
    return micro_batches(samples, cfg.micro_batch_tokens, learner.share, pack=cfg.packing)


def _split(
    episodes: Sequence[Sequence[Segment]], cfg: SFTConfig
) -> tuple[list[Sequence[Segment]], list[Sequence[Segment]]]:
    """Training and held-out episodes, drawn by the seed."""
    order = list(episodes)
    random.Random(cfg.seed).shuffle(order)
    held = round(len(order) * cfg.eval_share)
    return order[held:], order[:held]


def _turns(segment: Segment) -> list[Sample]:
    """One sample a turn, weighted with 1/|a|."""
    samples = []
    for start, stop in segment.spans():
        alone = tuple(start <= i < stop for i in range(len(segment.action_mask)))
        turn = dataclasses.replace(segment, action_mask=alone)
        samples.append(Sample(turn, advantage=0.0, weight=1.0 / (stop - start)))
    return samples


def _batches(
    episodes: Sequence[Sequence[Segment]], batch_size: int, seed: int
) -> list[list[Sample]]:
    """Optimizer batches of about equal size. Turns of an episode stay together: they share a prompt."""
    order = list(episodes)
    random.Random(seed).shuffle(order)
    turns = [sample for episode in order for segment in episode for sample in _turns(segment)]
    return [
        [dataclasses.replace(s, denominator=float(len(part))) for s in part]
        for part in even_parts(turns, batch_size)
    ]


def _loss(
    learner: Learner, seat: Seat, batch: TrainBatch, beta: float, with_kl: bool = False
) -> tuple[Tensor, Sums]:
    """The micro-batch's part of the loss, and sums; the KL is 0 where neither β nor ``with_kl`` asks for it."""
    chunk = learner.algo.logprob_chunk
    ref_Nd = None
    if beta > 0.0 or with_kl:
        with torch.no_grad(), learner.model.disable_adapter():
            ref_Nd = hidden_states(learner.base, batch)
    logprobs_N, kl_N = action_logprobs_and_kl(learner.base, batch, ref_Nd, 1.0, chunk)
    loss = ((beta * kl_N - logprobs_N) * batch.weights_N).sum() / batch.denominator
    return loss, {
        "loss": loss.detach() * batch.denominator,
        "nll": -(logprobs_N.detach() * batch.weights_N).sum(),
        "kl": (kl_N.detach() * batch.weights_N).sum(),
        "turns": batch.weights_N.sum(),
        "tokens": torch.ones_like(logprobs_N).sum(),
    }


def _evaluate(
    learner: Learner, seat: Seat, episodes: Sequence[Sequence[Segment]], cfg: SFTConfig
) -> dict[str, float]:
    """Metrics on held-out episodes; empty if there are none."""
    total: Sums = {}
    for samples in _batches(episodes, 0, cfg.seed):
        for batch in _micros(samples, learner, cfg):
            with learner.using(seat), torch.no_grad(), learner.accelerator.autocast():
                on_device = batch.to(learner.device)
                total = add_sums(total, _loss(learner, seat, on_device, cfg.beta, with_kl=True)[1])
    return {f"eval_{name}": value for name, value in _means(total).items()} if total else {}


def _means(sums: Sums) -> dict[str, float]:
    turns = float(sums["turns"])
    means = {name: float(sums[name]) / turns for name in ("loss", "nll", "kl")}
    return means | {"turns": turns, "tokens": float(sums["tokens"])}
