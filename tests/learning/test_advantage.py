"""Advantages against the textbook formula."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arlas.learning.advantage import group_advantages

REWARDS = st.lists(st.floats(-10, 10), min_size=2, max_size=16)


@given(REWARDS)
def test_advantages_are_standard_scores_of_the_group(rewards: list[float]) -> None:
    """(r - mean) / population std, from the standard library's own mean and deviation."""
    std = statistics.pstdev(rewards)
    found = group_advantages(rewards)
    if std < 1e-7:
        assert found is None
    elif std > 1e-5:
        mean = statistics.fmean(rewards)
        assert found == pytest.approx([(r - mean) / std for r in rewards], rel=1e-6, abs=1e-9)


def test_without_the_division_only_the_mean_is_taken_off() -> None:
    """Dr.GRPO's switch leaves the spread of rewards in."""
    assert group_advantages([1.0, 0.0, 0.0, 3.0], normalize_std=False) == [0.0, -1.0, -1.0, 2.0]


@pytest.mark.parametrize("rewards", [[], [1.0], [0.5, 0.5, 0.5], [0.1 + 0.2, 0.3]])
def test_groups_that_teach_nothing_are_flagged(rewards: list[float]) -> None:
    """Fewer than two episodes or equal rewards, also when they differ by rounding alone."""
    assert group_advantages(rewards) is None


def test_a_reward_that_is_no_number_is_refused() -> None:
    """NaN would spread to every token of the group."""
    with pytest.raises(ValueError, match="not finite"):
        group_advantages([1.0, float("nan")])
