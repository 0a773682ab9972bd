"""Rates with their intervals, and the rows of ``crossplay.csv``. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arlas.types import NO_GUARD

NO_ATTACK = "none"


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, as shares (Wilson 1927).

    Raises ValueError without trials, or if there are more successes than trials.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"no proportion: {successes} of {trials}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    # The ends are exact at 0 and 1; rounding must not move them.
    low = 0.0 if successes == 0 else centre - half
    return low, 1.0 if successes == trials else centre + half


def difference(
    successes: int, trials: int, successes_0: int, trials_0: int, confidence: float = 0.95
) -> tuple[float, float, float]:
    """How much higher the first of two independent proportions is: (difference, low, high).

    Newcombe's interval from two Wilson intervals (Statistics in Medicine 17, 1998, method 10).
    """
    low, high = wilson(successes, trials, confidence)
    low_0, high_0 = wilson(successes_0, trials_0, confidence)
    share, share_0 = successes / trials, successes_0 / trials_0
    gap = share - share_0
    return (
        gap,
        gap - math.hypot(share - low, high_0 - share_0),
        gap + math.hypot(high - share, share_0 - low_0),
    )


def mean_se(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard error (s / √n, s with n−1) over seeds; the error of one value is NaN.

    Raises ValueError without values.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or given.size == 0:
        raise ValueError(f"mean_se needs a list of numbers, got shape {given.shape}")
    if given.size == 1:
        return float(given[0]), math.nan
    return float(given.mean()), float(given.std(ddof=1) / math.sqrt(given.size))


def bootstrap(
    values_S: ArrayLike, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile bootstrap interval of the mean over the first axis (seeds), as (low, high).

    Further axes are kept and resampled together, so that a curve's seeds stay whole curves. With few seeds
    it is too narrow: five values cover about 85 % instead of 95 %.
    """
    given = np.asarray(values_S, dtype=np.float64)
    if given.ndim == 0 or given.shape[0] == 0:
        raise ValueError("bootstrap needs at least one value")
    count = given.shape[0]
    draws_RS = np.random.default_rng(seed).multinomial(count, [1 / count] * count, size=resamples)
    means = np.tensordot(draws_RS / count, given, axes=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


def cluster_bootstrap(
    sums_KC: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """A statistic of sums over clusters (tasks) and its percentile bootstrap interval: (value, low, high).

    ``sums_KC`` holds C sums of each of K clusters; whole clusters are drawn with replacement, and ``statistic``
    maps totals [R, C] to values [R]. Cases of one task are alike, so drawing cases would give too narrow an interval.
    With few tasks this one is too narrow as well. Raises ValueError without clusters.
    """
    given = np.asarray(sums_KC, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] == 0:
        raise ValueError(f"cluster_bootstrap needs sums of at least one cluster, got {given.shape}")
    count = given.shape[0]
    draws_RK = np.random.default_rng(seed).multinomial(count, [1 / count] * count, size=resamples)
    tail = (1 - confidence) / 2
    low, high = np.quantile(statistic(draws_RK @ given), [tail, 1 - tail])
    return float(statistic(given.sum(0, keepdims=True))[0]), float(low), float(high)


@dataclass(frozen=True)
class CrossplayRow:
    """A cell of the cross-play matrix for one seed: a row of ``crossplay.csv``.

    Rates and their 95 % Wilson intervals are shares; None (an empty field) where nothing was counted. ``guard`` names
    the runtime layers, which stopped ``stopped`` calls.
    """

    attacker: str
    agent: str
    seed: int
    episodes: int
    exposed: int
    leaks: int
    successes: int
    asr: float | None
    asr_low: float | None
    asr_high: float | None
    tsr: float | None
    tsr_low: float | None
    tsr_high: float | None
    guard: str = NO_GUARD
    stopped: int = 0

    @property
    def player(self) -> str:
        """The agent with its layers: ``rl-5 + filter``."""
        return self.agent if self.guard == NO_GUARD else f"{self.agent} + {self.guard}"

    def record(self) -> dict[str, str]:
        """The row for `csv.DictWriter`; rates with six decimals."""
        return {
            key: "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)
            for key, value in asdict(self).items()
        }


CROSSPLAY_HEADER = tuple(f.name for f in fields(CrossplayRow))
OLD_HEADER = CROSSPLAY_HEADER[:-2]
"""The columns of tables from before there were runtime layers."""


def cell_row(
    attacker: str, agent: str, seed: int, *, episodes: int, exposed: int, leaks: int, successes: int,
    guard: str = NO_GUARD, stopped: int = 0,
) -> CrossplayRow:  # fmt: skip
    """Rates of one cell from its counts, over episodes without infrastructure faults.

    The attack success rate counts only episodes in which the agent was exposed to the attack, and so must
    ``leaks`` (invariant 11); for the attacker ``none`` it is the share of all episodes that leaked
    unasked. Raises ValueError on counts that contradict each other.
    """
    asked = episodes if attacker == NO_ATTACK else exposed
    if not (0 <= leaks <= asked <= episodes and 0 <= successes <= episodes):
        raise ValueError(
            f"counts of attacker {attacker} against agent {agent} contradict each other: "
            f"{leaks} leaks of {asked}, {successes} successes of {episodes}"
        )
    attack, task = _rate(leaks, asked), _rate(successes, episodes)
    counts = (episodes, exposed, leaks, successes)
    return CrossplayRow(attacker, agent, seed, *counts, *attack, *task, guard, stopped)


def _rate(successes: int, trials: int) -> tuple[float | None, float | None, float | None]:
    if trials == 0:
        return None, None, None
    return successes / trials, *wilson(successes, trials)
