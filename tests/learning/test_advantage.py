"""Advantages against the textbook formula."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arlas.learning.advantage import MovingBaseline, group_advantages, leave_one_out

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


@given(REWARDS)
def test_leave_one_out_compares_with_the_others(rewards: list[float]) -> None:
    """r - the mean of everybody else's r, worked out for each episode apart."""
    found = leave_one_out(rewards)
    expected = [r - statistics.fmean(rewards[:i] + rewards[i + 1 :]) for i, r in enumerate(rewards)]
    if statistics.pstdev(rewards) > 1e-5:
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    if max(rewards) == min(rewards):
        assert found is None
    assert leave_one_out(rewards[:1]) is None
    assert leave_one_out([]) is None


@given(st.lists(REWARDS, min_size=1, max_size=4), st.floats(0.0, 0.99))
def test_moving_baseline_by_its_closed_form(groups: list[list[float]], decay: float) -> None:
    """b after k episodes is (1 - α) Σ α^(k-i) r_i over all episodes so far, whatever groups they come in."""
    moving, every, found = MovingBaseline(decay), [], []
    for rewards in groups:
        found += moving.advantages(rewards)
        every += rewards
    for k, reward in enumerate(every):
        average = (1 - decay) * sum(decay ** (k - i) * every[i] for i in range(k + 1))
        assert found[k] == pytest.approx(reward - average, rel=1e-6, abs=1e-6)


def test_moving_baseline_keeps_its_averages_apart_and_whole() -> None:
    """Keys do not mix; a reward that is no number moves nothing; no episode, no average."""
    moving = MovingBaseline(0.5, {"a": 1.0})
    assert moving.advantages([3.0], "a") == [1.0]
    assert moving.advantages([1.0], "b") == [0.5]
    assert moving.advantages([], "c") == []
    with pytest.raises(ValueError, match="not finite"):
        moving.advantages([1.0, float("inf")], "a")
    assert moving.averages == {"a": 2.0, "b": 0.5}
