"""Which tasks to train on: a rule that knows no particular world."""

from __future__ import annotations

from collections.abc import Mapping


def filter_tasks(rates: Mapping[str, tuple[int, int]], threshold: float = 0.2) -> tuple[str, ...]:
    """Tasks that a policy solves more often than ``threshold``, in order of name (the paper: > 20 %).

    ``rates`` maps a task to (successes, episodes). Raises ValueError on a task without episodes or with
    more successes than episodes.
    """
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold must lie in [0, 1], got {threshold}")
    for task, (successes, episodes) in rates.items():
        if not 0 <= successes <= episodes or episodes == 0:
            raise ValueError(f"{task}: {successes} successes in {episodes} episodes is no rate")
    return tuple(sorted(task for task, (won, of) in rates.items() if won > threshold * of))
