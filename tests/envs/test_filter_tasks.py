"""The rule that chooses training tasks by a policy's success rate."""

import pytest

from envs.tasks import filter_tasks


def test_only_tasks_solved_more_often_than_the_threshold_stay() -> None:
    """The paper's rule is a strict `> 20 %`: exactly one in five does not pass."""
    rates = {"c": (1, 5), "b": (2, 5), "a": (5, 5), "d": (0, 5), "e": (21, 100)}
    assert filter_tasks(rates) == ("a", "b", "e")
    assert filter_tasks(rates, 0.0) == ("a", "b", "c", "e")
    assert filter_tasks(rates, 1.0) == ()


@pytest.mark.parametrize("rate", [(0, 0), (3, 2), (-1, 4)])
def test_impossible_rates_are_refused(rate: tuple[int, int]) -> None:
    """A task that was never played is an error, not a task with success rate 0."""
    with pytest.raises(ValueError, match="task-x"):
        filter_tasks({"task-x": rate})
