"""A gymnasium environment in this process as a world."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium

from envs.base import (
    Observation,
    Start,
    Step,
    ToolCallError,
    UnknownTaskError,
    Verdict,
    World,
    WorldError,
)


class AnyText(gymnasium.Space[str]):
    """The space of all texts."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return ""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class LocalWorld:
    """A `World` over a gymnasium environment in this process.

    Any environment with text observations and text actions works: without our ``info`` keys the goal
    is empty, there are no tools, and a terminal reward above zero counts as completion. What an
    environment raises becomes a `WorldError`, and that environment is not used again.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], release: Any = None) -> None:
        self.env = env
        self.broken = False
        self._last = Observation("")
        self._release = release

    async def reset(self, task: str, seed: int, user: Mapping[str, str]) -> Start:
        with self._faults():
            begun = self.env.reset(seed=seed, options={"task": task, "user": dict(user)})
            start = start_of(*begun)
            self._last = start.observation
            return start

    async def plant(self, text: str) -> Observation:
        with self._faults():
            self._last = plant_of(self.env, text)
            return self._last

    async def step(self, action: str) -> Step:
        with self._faults():
            try:
                played = self.env.step(action)
            except ToolCallError as malformed:  # a world may parse calls itself
                return Step(self._last, False, Verdict(), error=str(malformed))
            step = step_of(*played)
            self._last = step.observation
            return step

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except UnknownTaskError:
            raise
        except Exception as error:
            self.broken = True
            if isinstance(error, WorldError):
                raise
            raise WorldError(
                f"{type(self.env.unwrapped).__name__}: {type(error).__name__}: {error}"
            ) from error

    async def close(self) -> None:
        if self._release is not None:
            self._release(self)
            self._release = None


class LocalWorlds:
    """A `Worlds` pool in this process: cheap environments, played one call at a time, in a fixed order."""

    def __init__(self, make: Any, capacity: int = 64) -> None:
        self.capacity = capacity
        self._make = make
        self._free: list[gymnasium.Env[Any, Any]] = []
        self._slots = asyncio.Semaphore(capacity)

    async def acquire(self) -> World:
        await self._slots.acquire()
        return LocalWorld(self._free.pop() if self._free else self._make(), self._give_back)

    def _give_back(self, world: LocalWorld) -> None:
        self._slots.release()
        if world.broken:
            with contextlib.suppress(Exception):
                world.env.close()
        else:
            self._free.append(world.env)

    async def close(self) -> None:
        for env in self._free:
            env.close()
        self._free.clear()


def start_of(observation: Any, info: Mapping[str, Any]) -> Start:
    """Gymnasium's ``reset`` result as a `Start`."""
    return Start(
        goal=str(info.get("goal", "")),
        observation=Observation(str(observation), tuple(info.get("sites", ()))),
        tools=tuple(info.get("tools", ())),
        attack=str(info.get("attack", "")),
        insiders=tuple(info.get("insiders", ())),
    )


def step_of(
    observation: Any, reward: Any, terminated: bool, truncated: bool, info: Mapping[str, Any]
) -> Step:
    """Gymnasium's ``step`` result as a `Step`."""
    verdict = info.get("verdict")
    if verdict is None:
        verdict = Verdict(completion=float(terminated and float(reward) > 0))
    return Step(
        observation=Observation(str(observation), tuple(info.get("sites", ()))),
        done=bool(terminated or truncated),
        verdict=verdict,
        error=info.get("error"),
        demanded=tuple(info.get("demanded", ())),
    )


def plant_of(env: gymnasium.Env[Any, Any], text: str) -> Observation:
    """Calls an environment's ``plant`` if it has one. Raises `WorldError` with the remedy if not."""
    plant = getattr(env.unwrapped, "plant", None)
    if plant is None:
        raise WorldError(
            f"{type(env.unwrapped).__name__} has no plant(); use game.injection.placement=random_line or end"
        )
    planted: Observation = plant(text)
    return planted
