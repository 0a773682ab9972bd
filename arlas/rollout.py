"""The one driver of all games: many at once, seats alternating, groups out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arlas.chat import Chat
from arlas.game import play
from arlas.player import Player
from arlas.policies.base import Policy
from arlas.rules import GameConfig, RewardConfig
from arlas.seeding import derive
from arlas.types import Episode, Group, PolicyRef, Sampling, Seat, Status
from envs.base import WorldError, Worlds


@dataclass(frozen=True)
class GroupSpec:
    """What one group plays: G episodes of one task and seed.

    ``attackers`` has one entry an episode, or none at all for play without an attack; within a group
    all are the same unless opponents are drawn per episode. In evaluation nobody is the learner.
    """

    task: str
    seed: int
    learner: Seat | None
    agent: PolicyRef
    attackers: tuple[PolicyRef, ...]
    size: int

    def __post_init__(self) -> None:
        if self.attackers and len(self.attackers) != self.size:
            raise ValueError(f"{len(self.attackers)} attackers for {self.size} episodes")

    @property
    def opponent(self) -> str:
        """The version that the learner meets, ``mixed`` if it changes within the group."""
        if self.learner is Seat.ATTACKER:
            return self.agent.version
        versions = sorted({a.version for a in self.attackers})
        return "mixed" if len(versions) > 1 else (versions[0] if versions else "none")


@dataclass(frozen=True)
class Driver:
    """Everything a game needs besides its seats: built once, used for training and evaluation alike.

    ``sampling`` and ``seed`` belong to the rollouts; the same seed gives the same samples.
    """

    policy: Policy
    chat: Chat
    worlds: Worlds
    game: GameConfig
    reward: RewardConfig
    sampling: Sampling
    retries: int = 1

    async def rollout(
        self,
        specs: Sequence[GroupSpec],
        seed: int,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> list[Group]:
        """Plays all groups, at most ``worlds.capacity`` games at once. Groups come back in order."""
        gate = asyncio.Semaphore(self.worlds.capacity)

        async def one(spec: GroupSpec, index: int) -> Episode:
            async with gate:
                episode = await self.episode(spec, index, seed)
            if on_episode is not None:
                on_episode(episode)
            return episode

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [[tasks.create_task(one(s, i)) for i in range(s.size)] for s in specs]
        except ExceptionGroup as failed:  # the first error itself, so that callers can tell it
            raise failed.exceptions[0] from None
        return [
            Group(s.task, s.seed, s.learner, s.opponent, tuple(t.result() for t in row))
            for s, row in zip(specs, running, strict=True)
        ]

    async def episode(self, spec: GroupSpec, index: int, seed: int) -> Episode:
        """One episode, tried again after an infrastructure fault (invariant 6)."""
        episode = await self._try(spec, index, seed)
        for _ in range(self.retries):
            if episode.status is Status.OK:
                break
            episode = await self._try(spec, index, seed)
        return episode

    async def _try(self, spec: GroupSpec, index: int, seed: int) -> Episode:
        def player(ref: PolicyRef) -> Player:
            # The learner's side is part of the seed: the two seats' groups draw apart.
            own = derive(seed, spec.learner or "", spec.task, spec.seed, index, ref.seat)
            return Player(self.policy, self.chat, ref, self.sampling, self.game, own)

        attacker = spec.attackers[index] if spec.attackers else None
        try:
            world = await self.worlds.acquire()
        except WorldError as fault:
            return Episode(
                task=spec.task,
                seed=spec.seed,
                index=index,
                learner=spec.learner,
                attacker=attacker,
                agent=spec.agent,
                status=Status.ERROR,
                error=f"WorldError: {fault}",
            )
        try:
            return await play(
                world,
                player(attacker) if attacker else None,
                player(spec.agent),
                task=spec.task,
                seed=spec.seed,
                index=index,
                learner=spec.learner,
                game=self.game,
                reward=self.reward,
            )
        finally:
            with contextlib.suppress(WorldError):  # what was played stands
                await world.close()
