"""Imitation: the warm start of both seats (ARLAS section 3.2)."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from arlas.config import SFTConfig
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
) -> dict[str, float]:
    """Trains a seat's adapter on demonstrated turns, given as segments by episode.

    L = E[1/|a| Σ_i (-log π(a_i) + β · KL(π ‖ π_base) at i)], the mean over turns a, at temperature 1 and with
    the exact KL over the vocabulary. ``progress`` is called with (steps done, steps in all, metrics).
    Raises `ConfigurationError` if there is nothing to train on.
    """
    cfg.validate()
    train, held = _split(episodes, cfg)
    epochs = [_batches(train, cfg.batch_size, cfg.seed + i) for i in range(cfg.epochs)]
    batches = [batch for epoch in epochs for batch in epoch]
    if not batches:
        raise ConfigurationError("no demonstrated turns to train on: every action mask is empty")
    batches = batches[: cfg.max_steps or None]
    metrics: dict[str, float] = {}
    for done, samples in enumerate(batches, start=1):
        micros = learner.mine(micro_batches(samples, cfg.micro_batch_tokens, learner.share))
        sums, norm = learner.step(
            seat, micros, lambda batch: _loss(learner, seat, batch, cfg.beta), lr=cfg.lr
        )
        metrics = _means(sums) | {"grad_norm": norm, "steps": float(done)}
        if progress is not None:
            progress(done, len(batches), metrics)
    return metrics | _evaluate(learner, seat, held, cfg)


def _split(
    episodes: Sequence[Sequence[Segment]], cfg: SFTConfig
) -> tuple[list[Sequence[Segment]], list[Sequence[Segment]]]:
    """Training and held-out episodes, drawn by the seed."""
    order = list(episodes)
    random.Random(cfg.seed).shuffle(order)
    held = round(len(order) * cfg.eval_share)
    return order[held:], order[:held]


def _turns(segment: Segment) -> list[Sample]:
    """One sample a turn, an unbroken run of action tokens, weighted with 1/|a|."""
    mask, samples, start = segment.action_mask, [], 0
    while start < len(mask):
        if not mask[start]:
            start += 1
            continue
        stop = next((i for i in range(start, len(mask)) if not mask[i]), len(mask))
        alone = tuple(start <= i < stop for i in range(len(mask)))
        turn = dataclasses.replace(segment, action_mask=alone)
        samples.append(Sample(turn, advantage=0.0, weight=1.0 / (stop - start)))
        start = stop
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


def _loss(learner: Learner, seat: Seat, batch: TrainBatch, beta: float) -> tuple[Tensor, Sums]:
    chunk = learner.algo.logprob_chunk
    ref_Nd = None
    if beta > 0.0:
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
        for batch in micro_batches(samples, cfg.micro_batch_tokens, learner.share):
            with learner.using(seat), torch.no_grad(), learner.accelerator.autocast():
                total = add_sums(total, _loss(learner, seat, batch.to(learner.device), cfg.beta)[1])
    return {f"eval_{name}": value for name, value in _means(total).items()} if total else {}


def _means(sums: Sums) -> dict[str, float]:
    turns = float(sums["turns"])
    means = {name: float(sums[name]) / turns for name in ("loss", "nll", "kl")}
    return means | {"turns": turns, "tokens": float(sums["tokens"])}
