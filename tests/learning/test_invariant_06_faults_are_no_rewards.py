"""Invariant 6: an infrastructure fault leaves its group, is counted, and never becomes a reward."""

from __future__ import annotations

import random

from learning_cases import episode, group, make_learner, segment, tokens

from arlas.config import AlgoConfig
from arlas.learning.batch import build_samples
from arlas.types import Episode, Seat, Status


def _episode(index: int, reward: float, status: Status = Status.OK) -> Episode:
    rng = random.Random(index)
    one = segment([(tokens(rng, 20), False), (tokens(rng, 4), True)])
    return episode(index, [one], reward, status=status)


def test_invariant_6_error_episodes_leave_the_group_first() -> None:
    """The advantages are those of the group without them; they are counted and have no sample."""
    clean = [_episode(0, 1.0), _episode(1, 0.0), _episode(2, 0.5)]
    broken = [clean[0], _episode(9, -1.0, Status.ERROR), *clean[1:]]
    expected, _ = build_samples([group(clean)], Seat.AGENT, AlgoConfig())
    found, counts = build_samples([group(broken)], Seat.AGENT, AlgoConfig())
    assert [s.advantage for s in found] == [s.advantage for s in expected]
    assert [s.segment for s in found] == [s.segment for s in expected]
    assert counts.episodes_error == 1
    assert counts.rewards == (1.0, 0.0, 0.5)


def test_invariant_6_what_remains_may_be_too_small_or_flat() -> None:
    """With fewer than two left there is no baseline; with equal rewards left there is no signal."""
    small = group([_episode(0, 1.0), _episode(1, 0.0, Status.ERROR)], seed=0)
    flat = group([_episode(0, 1.0), _episode(1, 1.0), _episode(2, 0.0, Status.ERROR)], seed=1)
    samples, counts = build_samples([small, flat], Seat.AGENT, AlgoConfig())
    assert samples == []
    metrics = counts.metrics()
    assert (metrics["groups_small"], metrics["groups_flat"], metrics["episodes_error"]) == (1, 1, 2)


def test_invariant_6_without_a_usable_group_no_step_is_taken() -> None:
    """The adapter and the optimizer stay as they are, and the metrics say so."""
    learner = make_learner()
    before = {n: p.clone() for n, p in learner.parameters(Seat.AGENT).items()}
    dead = group([_episode(i, 0.0, Status.ERROR) for i in range(4)])
    for groups in ([dead], []):
        metrics = learner.update(Seat.AGENT, groups, seed=0)
        assert metrics["steps"] == metrics["tokens"] == metrics["groups"] == 0
    assert all(bool((before[n] == p).all()) for n, p in learner.parameters(Seat.AGENT).items())
    assert learner.optimizers[Seat.AGENT].state == {}
    assert learner.steps[Seat.AGENT] == 0
