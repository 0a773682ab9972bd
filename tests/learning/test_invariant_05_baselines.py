"""Invariant 5: baselines by seat, task and seed, over whole episodes before they are cut into turns."""

from __future__ import annotations

import dataclasses
import random
import statistics
from itertools import pairwise

import pytest
from learning_cases import episode, group, segment, tokens

from arlas.config import AlgoConfig
from arlas.learning.batch import build_samples, optimizer_batches
from arlas.types import Seat


def _episode(index: int, turns: int, reward: float):  # type: ignore[no-untyped-def]
    rng = random.Random(index)
    cut = [segment([(tokens(rng, 9), False), (tokens(rng, 4), True)]) for _ in range(turns)]
    return episode(index, cut, reward)


def test_invariant_5_long_episodes_weigh_no_more_in_the_baseline() -> None:
    """The baseline is the mean over episodes, however many turns each has; a turn's token has its episode's."""
    rewards, turns = [1.0, 0.0, 0.0, -1.0], [5, 1, 2, 1]
    made = group([_episode(i, t, r) for i, (t, r) in enumerate(zip(turns, rewards, strict=True))])
    samples, counts = build_samples([made], Seat.AGENT, AlgoConfig())
    std = statistics.pstdev(rewards)
    expected = [r / std for r, t in zip(rewards, turns, strict=True) for _ in range(t)]
    assert [s.advantage for s in samples] == pytest.approx(expected)
    assert counts.metrics()["reward_mean"] == 0.0


def test_invariant_5_each_group_has_its_own_baseline() -> None:
    """Groups of other tasks or seeds do not move it."""
    easy = group([_episode(i, 1, 10.0 + i) for i in range(3)], seed=1)
    hard = group([_episode(i, 1, -10.0 + i) for i in range(3)], seed=2)
    alone, _ = build_samples([easy], Seat.AGENT, AlgoConfig())
    both, _ = build_samples([easy, hard], Seat.AGENT, AlgoConfig())
    assert [s.advantage for s in both[:3]] == [s.advantage for s in alone]
    assert [s.advantage for s in both[3:]] == pytest.approx([s.advantage for s in alone])


def test_invariant_5_each_seat_on_its_own_rewards() -> None:
    """The same episodes give the attacker advantages from the attacker's rewards."""
    episodes = [_episode(i, 1, float(i % 2)) for i in range(4)]
    attacker_rewards = [0.0, 0.5, 1.0, 1.5]
    both = [
        dataclasses.replace(
            e,
            segments=dict.fromkeys(Seat, e.segments[Seat.AGENT]),
            rewards={Seat.AGENT: e.rewards[Seat.AGENT], Seat.ATTACKER: r},
        )
        for e, r in zip(episodes, attacker_rewards, strict=True)
    ]
    samples, _ = build_samples([group(both)], Seat.ATTACKER, AlgoConfig())
    std = statistics.pstdev(attacker_rewards)
    expected = [(r - 0.75) / std for r in attacker_rewards]
    assert [s.advantage for s in samples] == pytest.approx(expected)


def test_flat_groups_are_dropped_whole_and_counted() -> None:
    """Equal rewards: no sample of the group is left, and the metrics say how many such groups there were."""
    flat = group([_episode(i, 2, 1.0) for i in range(4)], seed=0)
    live = group([_episode(i, 2, float(i)) for i in range(4)], seed=1)
    samples, counts = build_samples([flat, live], Seat.AGENT, AlgoConfig())
    assert {s.group for s in samples} == {1}
    metrics = counts.metrics()
    assert (metrics["groups"], metrics["groups_flat"], metrics["episodes"]) == (1, 1, 4)
    assert metrics["reward_mean"] == pytest.approx((4 * 1.0 + 6.0) / 8)
    values = [1.0] * 4 + [0.0, 1.0, 2.0, 3.0]
    assert metrics["reward_se"] == pytest.approx(statistics.stdev(values) / 8**0.5)


def test_optimizer_batches_hold_every_episode_once_in_an_order_of_the_seed() -> None:
    """At most batch_size episodes, sizes differ by one at most, groups together, seed decides the order."""
    groups = [group([_episode(i, 2, float(i)) for i in range(4)], seed=s) for s in range(7)]
    samples, _ = build_samples(groups, Seat.AGENT, AlgoConfig())
    algo = AlgoConfig(batch_size=6)
    parts = optimizer_batches(samples, algo, seed=1)
    sizes = [len({s.episode for s in part}) for part in parts]
    assert sum(sizes) == 28
    assert max(sizes) <= 6
    assert max(sizes) - min(sizes) <= 1
    order = [s.group for part in parts for s in part]
    changes = sum(a != b for a, b in pairwise(order))
    assert changes == 6  # each group in one piece
    again = optimizer_batches(samples, algo, seed=1)
    other = optimizer_batches(samples, algo, seed=2)
    assert parts == again
    assert order != [s.group for part in other for s in part]
    assert len(optimizer_batches(samples, AlgoConfig(batch_size=0), seed=1)) == 1
    assert optimizer_batches([], algo, seed=1) == []
