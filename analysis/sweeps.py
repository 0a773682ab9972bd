"""Runs that differ in one choice and in the seed: curves over iterations, and differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from arlas.statistics import mean_se


@dataclass(frozen=True)
class Curves:
    """One choice: ``values[measure]`` is [S, I] over seeds and the iterations that all seeds have."""

    seeds: tuple[int, ...]
    iterations: tuple[int, ...]
    values: dict[str, NDArray[np.float64]]

    @classmethod
    def of(
        cls, points: Mapping[tuple[int, int], Sequence[float]], measures: Sequence[str]
    ) -> Curves:
        """From values by (seed, iteration), in the order of ``measures``."""
        seeds = tuple(sorted({seed for seed, _ in points}))
        every = sorted({iteration for _, iteration in points})
        shared = tuple(i for i in every if all((s, i) in points for s in seeds))
        table_SIM = np.array([[points[s, i] for i in shared] for s in seeds])
        table_SIM = table_SIM.reshape(len(seeds), len(shared), len(measures))
        return cls(seeds, shared, {m: table_SIM[:, :, k] for k, m in enumerate(measures)})

    def means(
        self, measure: str, seeds: Sequence[int], iterations: Sequence[int]
    ) -> NDArray[np.float64]:
        """The mean over some iterations for some seeds, [S]."""
        rows = [self.seeds.index(s) for s in seeds]
        columns = [self.iterations.index(i) for i in iterations]
        found: NDArray[np.float64] = self.values[measure][np.ix_(rows, columns)].mean(axis=1)
        return found


@dataclass(frozen=True)
class Gap:
    """one − other over ``iterations``, paired by seed; ``low`` and ``high`` are Student's 95 % interval over
    the seeds, NaN with one seed."""

    one: float
    other: float
    gap: float
    low: float
    high: float
    seeds: int
    iterations: tuple[int, int]
    """The first and the last."""


def last_quarter(iterations: Sequence[int]) -> Sequence[int]:
    """The final quarter, rounded up."""
    return iterations[len(iterations) - math.ceil(len(iterations) / 4) :]


def compare(one: Curves, other: Curves, measure: str) -> Gap | None:
    """The difference over the final quarter of the iterations that both have; None without common seeds or
    iterations."""
    seeds = [s for s in one.seeds if s in other.seeds]
    final = last_quarter([i for i in one.iterations if i in other.iterations])
    if not seeds or not final:
        return None
    means = [c.means(measure, seeds, final) for c in (one, other)]
    gap, se = mean_se(means[0] - means[1])
    half = math.nan if len(seeds) < 2 else float(student.ppf(0.975, len(seeds) - 1)) * se
    sides = float(means[0].mean()), float(means[1].mean())
    return Gap(*sides, gap, gap - half, gap + half, len(seeds), (final[0], final[-1]))
