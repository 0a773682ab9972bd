"""The driver: groups in order, capacity, seeds, retries, one opponent a group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import AGENT, ATTACKER, Fake, Page, act, chat_of, driver, with_game

from arlas.rollout import GroupSpec
from arlas.types import AdapterError, Episode, PolicyError, PolicyRef, Request, Seat, Status
from envs.base import WorldError
from envs.local import LocalWorlds


def spec(task: str = "form", seed: int = 3, size: int = 4, **more: Any) -> GroupSpec:
    return GroupSpec(
        task,
        seed,
        more.pop("learner", Seat.AGENT),
        AGENT,
        more.pop("attackers", (ATTACKER,) * size),
        size,
    )


def say(request: Request) -> str:
    """Something that follows from the request's seed alone."""
    if request.policy.seat is Seat.ATTACKER:
        return act(f"text {request.seed % 1000}")
    return act('click("done")' if request.seed % 3 == 0 else f'click("{request.seed % 100}")')


async def test_invariant_05_episodes_of_a_group_share_task_seed_person_and_opponent() -> None:
    """Within a group only the samples and placements differ."""
    page = Page()
    games = driver(Fake(chat_of(), say), lambda: page, worlds=LocalWorlds(lambda: page, capacity=1))
    groups = await games.rollout([spec("a", 1), spec("b", 2), spec("a", 2)], seed=0)
    for group, (task, seed) in zip(groups, [("a", 1), ("b", 2), ("a", 2)], strict=True):
        assert {(e.task, e.seed, e.attacker, e.agent) for e in group.episodes} == {
            (task, seed, ATTACKER, AGENT)
        }
        assert (group.task, group.seed, group.learner, group.opponent) == (
            task,
            seed,
            Seat.AGENT,
            "base",
        )
        assert [e.index for e in group.episodes] == [0, 1, 2, 3]
        assert len({tuple(e.user.items()) for e in group.episodes}) == 1
        assert len({tuple(t.text for t in e.turns) for e in group.episodes}) > 1
    assert len({tuple(g.episodes[0].user.items()) for g in groups}) == 3
    assert {(s, t) for s, t, _ in page.resets} == {(1, "a"), (2, "b"), (2, "a")}
    for seed, task, user in page.resets:
        mine = next(g for g in groups if (g.task, g.seed) == (task, seed))
        assert user == mine.episodes[0].user


async def test_opponents_may_differ_by_episode() -> None:
    """opponent.draw=episode: each episode meets its own attacker, the group is called mixed."""
    attackers = tuple(PolicyRef(Seat.ATTACKER, f"rl-{i}", f"attacker-{i}") for i in range(3))
    policy = Fake(chat_of(), say)
    groups = await driver(policy).rollout([spec(size=3, attackers=attackers)], seed=0)
    assert [e.attacker for e in groups[0].episodes] == list(attackers)
    assert groups[0].opponent == "mixed"
    asked = {r.policy for r in policy.requests if r.policy.seat is Seat.ATTACKER}
    assert asked == set(attackers)
    assert spec(attackers=()).opponent == "none"
    assert spec(learner=Seat.ATTACKER).opponent == "base"
    with pytest.raises(ValueError, match="3 attackers for 4 episodes"):
        spec(size=4, attackers=attackers)


async def test_groups_come_back_in_order_whatever_ends_first() -> None:
    """Later games may end earlier; results follow the specs."""

    class Uneven(Fake):
        async def complete(self, request: Request) -> Any:
            await asyncio.sleep((request.seed % 7) / 1000)
            return await super().complete(request)

    done: list[Episode] = []
    specs = [spec(f"t{i}", i, 3) for i in range(6)]
    groups = await driver(Uneven(chat_of(), say)).rollout(specs, 0, done.append)
    assert [(g.task, [e.index for e in g.episodes]) for g in groups] == [
        (f"t{i}", [0, 1, 2]) for i in range(6)
    ]
    assert len(done) == 18
    assert [e.task for e in done] != [e.task for g in groups for e in g.episodes]


async def test_capacity_is_respected_and_used() -> None:
    """Never more games open than the worlds have room for, and all of the room is used."""
    open_now, most = 0, 0

    class Counting(LocalWorlds):
        async def acquire(self) -> Any:
            nonlocal open_now, most
            world: Any = await super().acquire()
            open_now += 1
            most = max(most, open_now)
            close = world.close

            async def closed() -> None:
                nonlocal open_now
                open_now -= 1
                await close()

            world.close = closed
            return world

    policy = Fake(chat_of(), say)
    await driver(policy, worlds=Counting(Page, capacity=5)).rollout(
        [spec(size=8), spec("b", size=8)], 0
    )
    assert (most, open_now) == (5, 0)


async def test_same_seed_same_episodes() -> None:
    """Twice the same seed: equal in everything but time; another seed: other samples; capacity changes nothing."""

    async def run(seed: int, capacity: int = 64) -> list[tuple[Any, ...]]:
        games = driver(Fake(chat_of(), say), worlds=LocalWorlds(Page, capacity=capacity))
        groups = await games.rollout([spec("a", 1), spec("b", 2, learner=Seat.ATTACKER)], seed)
        return [
            (
                e.task,
                e.index,
                e.user,
                e.rewards,
                e.segments,
                *((t.observation, t.text) for t in e.turns),
            )
            for g in groups
            for e in g.episodes
        ]

    first = await run(0)
    assert first == await run(0)
    assert first == await run(0, capacity=1)
    assert first != await run(1)


async def test_the_two_seats_groups_draw_apart() -> None:
    """The same task and seed for either learner: other samples."""
    games = driver(Fake(chat_of(), say))
    agents, attackers = await games.rollout([spec(), spec(learner=Seat.ATTACKER)], 0)
    for one, two in zip(agents.episodes, attackers.episodes, strict=True):
        assert one.turns[0].text != two.turns[0].text


async def test_invariant_06_faults_are_tried_again_and_then_counted() -> None:
    """One retry heals a fault that passes; one that stays is an error episode in its group, the others unharmed."""
    calls: dict[str, int] = {}

    class Flaky(Page):
        def reset(self, **options: Any) -> tuple[str, dict[str, Any]]:
            task = options["options"]["task"]
            calls[task] = calls.get(task, 0) + 1
            if task == "dead" or (task == "once" and calls[task] == 1):
                raise WorldError("the browser died")
            return super().reset(**options)

    games = driver(Fake(chat_of(), say), Flaky, retries=1)
    groups = await games.rollout(
        [spec("once", size=2), spec("dead", size=2), spec("fine", size=2)], 0
    )
    assert [[e.status for e in g.episodes] for g in groups] == [
        [Status.OK] * 2,
        [Status.ERROR] * 2,
        [Status.OK] * 2,
    ]
    assert calls == {"once": 3, "dead": 4, "fine": 2}
    assert [len(g.usable) for g in groups] == [2, 0, 2]
    assert all(not e.rewards and "the browser died" in str(e.error) for e in groups[1].episodes)


async def test_invariant_06_no_world_to_be_had_is_a_fault() -> None:
    """A pool that cannot start a browser, or that fails while it takes a world back, costs no run."""

    class Empty(LocalWorlds):
        tried = 0

        async def acquire(self) -> Any:
            self.tried += 1
            if self.tried <= 2:
                raise WorldError("no browser could be started")
            world: Any = await super().acquire()
            close = world.close

            async def failing() -> None:
                await close()
                raise WorldError("it hung while closing")

            world.close = failing
            return world

    worlds = Empty(Page)
    games = driver(Fake(chat_of(), say), worlds=worlds, retries=1)
    (group,) = await games.rollout([spec(size=1)], 0)
    assert group.episodes[0].status is Status.ERROR
    assert "no browser could be started" in str(group.episodes[0].error)
    (group,) = await games.rollout([spec(size=1)], 0)
    assert group.episodes[0].ok


async def test_invariant_06_engine_faults_hit_only_their_episodes() -> None:
    """A prompt too long or a timed-out engine is an error of that episode."""

    def sometimes(request: Request) -> str | Exception:
        return PolicyError("timed out") if request.seed % 2 else say(request)

    games = driver(Fake(chat_of(), sometimes), game=with_game(max_steps=1))
    (group,) = await games.rollout([spec(size=16)], 0)
    assert 0 < len(group.usable) < 16
    assert all((e.rewards == {}) == (not e.ok) for e in group.episodes)


async def test_mistakes_are_no_faults() -> None:
    """An adapter that is not loaded stops the rollout with that very error, and every world is given back."""
    worlds = LocalWorlds(Page, capacity=2)
    policy = Fake(chat_of(), lambda r: AdapterError("attacker-3 is not loaded"))
    with pytest.raises(AdapterError, match="attacker-3 is not loaded"):
        await driver(policy, worlds=worlds, retries=1).rollout([spec(size=6)], 0)
    async with asyncio.timeout(1):
        held = [await worlds.acquire() for _ in range(2)]
    for world in held:
        await world.close()
