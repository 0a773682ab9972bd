"""Imitation: the warm start of both seats (ARLAS section 3.2)."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arlas.learning.batch import Sample, TrainBatch, micro_batches
from arlas.learning.learner import Learner
from arlas.learning.logprobs import action_logprobs_and_kl, hidden_states
from arlas.learning.loss import Sums, add_sums
from arlas.types import ConfigurationError, Seat, Segment


@dataclass
class SFTConfig:
    """Warm start by imitation; the defaults are the paper's."""

    lr: float = 5e-6
    batch_size: int = 128
    """Turns an optimizer step; 0 takes all at once."""
    beta: float = 0.05
    """Weight of the exact KL to the base model (β_SFT)."""
    epochs: int = 1
    max_steps: int = 0
    """Stop after so many optimizer steps; 0 leaves it to ``epochs``."""
    eval_share: float = 0.0
    """Share of the episodes held out to measure the loss on."""
    micro_batch_tokens: int = 16384
    seed: int = 0

    def validate(self) -> None:
        """Raises `ConfigurationError` on values that make no sense."""
        for good, message in (
            (self.lr > 0.0, f"sft.lr must be above 0, got {self.lr}"),
            (self.beta >= 0.0, f"sft.beta must not be negative, got {self.beta}"),
            (self.batch_size >= 0 and self.epochs >= 1, "sft.batch_size ≥ 0 and sft.epochs ≥ 1"),
            (0.0 <= self.eval_share < 1.0, "sft.eval_share must lie in [0, 1)"),
        ):
            if not good:
                raise ConfigurationError(message)


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
    samples = [s for s in map(_sample, train) if s]
    if not samples:
        raise ConfigurationError("no demonstrated turns to train on: every action mask is empty")
    total = math.ceil(len(samples) / (cfg.batch_size or len(samples))) * cfg.epochs
    total = min(total, cfg.max_steps) if cfg.max_steps else total
    done, metrics = 0, _evaluate(learner, seat, held, cfg)
    for epoch in range(cfg.epochs):
        for batch in _batches(samples, cfg, epoch):
            if done == total:
                break
            micros = learner.mine(micro_batches(batch, cfg.micro_batch_tokens, learner.share))
            sums, norm = learner.step(
                seat, micros, lambda b: _loss(learner, seat, b, cfg.beta), lr=cfg.lr
            )
            done += 1
            metrics |= _means(sums) | {"grad_norm": norm, "steps": float(done)}
            if progress is not None:
                progress(done, total, metrics)
    return metrics | {f"eval_{k}": v for k, v in _evaluate(learner, seat, held, cfg).items()}
