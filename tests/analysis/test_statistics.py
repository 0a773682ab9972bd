"""Intervals against scipy, published figures and simulated coverage; the rows of crossplay.csv."""

import math

import numpy as np
import pytest
from scipy import stats

from arlas.statistics import (
    CROSSPLAY_HEADER,
    bootstrap,
    cell_row,
    difference,
    mean_se,
    wilson,
)


@pytest.mark.parametrize("trials", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson_equals_scipy(trials, confidence):
    """Every count of successes gives scipy's Wilson interval."""
    for successes in {0, 1, trials // 3, trials - 1, trials}:
        reference = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
        assert wilson(successes, trials, confidence) == pytest.approx(tuple(reference), abs=1e-12)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
def test_wilson_covers_the_truth_about_as_often_as_promised(share):
    """Exact coverage over the binomial distribution at n = 64 lies near 95 %."""
    counts = np.arange(65)
    inside = [low <= share <= high for low, high in (wilson(int(k), 64) for k in counts)]
    assert 0.92 <= stats.binom.pmf(counts, 64, share) @ inside <= 0.99


def test_difference_equals_newcombes_published_figures():
    """Newcombe 1998, table II, method 10: 56/70 − 48/80, 9/10 − 3/10, 10/10 − 0/10."""
    assert difference(56, 70, 48, 80) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert difference(9, 10, 3, 10) == pytest.approx((0.6, 0.1705, 0.8090), abs=5e-5)
    assert difference(10, 10, 0, 10) == pytest.approx((1.0, 0.6075, 1.0), abs=5e-5)


def test_mean_se_equals_scipy():
    """Mean and scipy's standard error of the mean; one value has no error; none is refused."""
    values = [0.2, 0.5, 0.35, 0.1]
    assert mean_se(values) == pytest.approx((np.mean(values), stats.sem(values)))
    mean, se = mean_se([0.4])
    assert mean == 0.4
    assert math.isnan(se)
    with pytest.raises(ValueError, match="mean_se needs"):
        mean_se([])


def test_bootstrap_equals_scipys_percentile_bootstrap():
    """Same interval as scipy's to its Monte Carlo error, also for whole curves at once."""
    curves_SX = np.random.default_rng(3).normal(size=(12, 2))
    low, high = bootstrap(curves_SX, resamples=20_000)
    for x in range(2):
        reference = stats.bootstrap(
            (curves_SX[:, x],), np.mean, method="percentile", n_resamples=20_000, rng=1
        ).confidence_interval
        assert (low[x], high[x]) == pytest.approx(tuple(reference), abs=0.02)


@pytest.mark.parametrize(("seeds", "least", "most"), [(5, 0.80, 0.90), (40, 0.92, 0.97)])
def test_bootstrap_coverage_is_what_the_docstring_says(seeds, least, most):
    """About 85 % with five seeds, near 95 % with many."""
    rng = np.random.default_rng(0)
    low, high = bootstrap(rng.normal(size=(seeds, 2000)), resamples=500)
    assert least <= np.mean((low <= 0) & (high >= 0)) <= most


def test_asr_counts_only_exposed_episodes():
    """Invariant 11: unseen injections are not applicable, neither in the rate nor in its interval."""
    row = cell_row("rl-5", "base", 0, episodes=64, exposed=16, leaks=4, successes=32)
    assert (row.asr, row.tsr) == (0.25, 0.5)
    assert (row.asr_low, row.asr_high) == pytest.approx(
        tuple(stats.binomtest(4, 16).proportion_ci(method="wilson"))
    )
    unseen = cell_row("rl-5", "base", 0, episodes=64, exposed=0, leaks=0, successes=32)
    assert unseen.asr is unseen.asr_low is unseen.asr_high is None
    assert unseen.record()["asr"] == ""
    alone = cell_row("none", "base", 0, episodes=64, exposed=0, leaks=2, successes=60)
    assert alone.asr == 2 / 64


def test_the_header_is_the_agreed_one():
    """The format that others rely on."""
    assert ",".join(CROSSPLAY_HEADER) == (
        "attacker,agent,seed,episodes,exposed,leaks,successes,asr,asr_low,asr_high,tsr,tsr_low,tsr_high,"
        "guard,stopped"
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"episodes": 4, "exposed": 5, "leaks": 0, "successes": 0},
        {"episodes": 4, "exposed": 1, "leaks": 2, "successes": 0},
        {"episodes": 4, "exposed": 4, "leaks": 0, "successes": 5},
        {"episodes": 4, "exposed": 4, "leaks": -1, "successes": 0},
    ],
)
def test_contradicting_counts_are_refused(bad):
    """More hits than trials is a bug upstream, never a rate above 1."""
    with pytest.raises(ValueError, match="contradict"):
        cell_row("base", "base", 0, **bad)
    with pytest.raises(ValueError, match="no proportion"):
        wilson(2, 1)
