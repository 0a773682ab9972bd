"""The pool of worker processes, with a toy environment that misbehaves on command."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from envs.base import WorldError
from envs.processes import family, kill_family
from envs.workers import Limits, ProcessWorlds

HERE = Path(__file__).resolve()


class Toy(gymnasium.Env[str, str]):
    """Counts its steps, and does what the action says."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.steps = 0
        assert options is not None
        return f"{options['task']} {seed} {options['user']} {os.getpid()}", {"goal": "count"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        kind, _, value = action.partition(" ")
        if kind == "sleep":
            time.sleep(float(value))
        if kind == "raise":
            raise RuntimeError(value)
        if kind == "quit":
            raise SystemExit(value)
        if kind == "die":
            os._exit(7)
        if kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "child":  # a grandchild that leaves the session, as Chromium does
            subprocess.Popen(["sleep", "1234"], start_new_session=True)
        return f"{self.steps} {value}", 0.0, False, False, {}


class Unstartable:
    """A factory that ends the worker while it is being unpickled."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


@asynccontextmanager
async def pool(
    workers: int = 1, slots: int = 1, factory: Any = Toy, **limits: Any
) -> AsyncIterator[ProcessWorlds]:
    worlds = ProcessWorlds(factory, workers, slots, Limits(**limits))
    try:
        yield worlds
    finally:
        await worlds.close()


async def opened(worlds: ProcessWorlds, seed: int = 0) -> Any:
    world = await worlds.acquire()
    await world.reset("task", seed, {})
    return world


def pids(worlds: ProcessWorlds) -> list[int]:
    return [p for w in worlds._workers if w._process for p in family(w._process.pid or 0, w._token)]


def alive(pid: int) -> bool:
    return pid in family(pid, "none")


async def test_a_world_in_a_worker_is_the_same_world() -> None:
    """Task, seed and user reach the environment; its answers come back as the words of the contract."""
    async with pool() as worlds:
        world = await worlds.acquire()
        start = await world.reset("count", 5, {"name": "Kim"})
        assert start.goal == "count"
        assert start.observation.text.startswith("count 5 {'name': 'Kim'}")
        assert (await world.step("say hello")).observation.text == "1 hello"
        with pytest.raises(WorldError, match=r"no plant\(\)"):
            await world.plant("text")


async def test_slots_are_spread_and_waited_for() -> None:
    """Episodes go to the least busy worker, and `acquire` waits for a slot to come free."""
    async with pool(workers=2, slots=1) as worlds:
        first, second = await opened(worlds), await opened(worlds)
        assert len({w._worker for w in (first, second)}) == 2
        waiting = asyncio.create_task(worlds.acquire())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await first.close()
        third = await asyncio.wait_for(waiting, 5)
        assert (await third.reset("again", 1, {})).observation.text.startswith("again 1")
        with pytest.raises(WorldError, match="given back"):
            await first.step("say x")


@pytest.mark.parametrize("action", ["raise no such luck", "quit no such luck"])
async def test_an_exception_is_a_world_error_and_the_slot_is_remade(action: str) -> None:
    """Whatever an environment raises, SystemExit included, ends its episode and nothing else."""
    async with pool(slots=2) as worlds:
        broken, other = await opened(worlds), await opened(worlds)
        with pytest.raises(WorldError, match="no such luck"):
            await broken.step(action)
        with pytest.raises(WorldError, match="failed before"):
            await broken.step("say x")
        assert (await other.step("say still here")).observation.text == "1 still here"
        await broken.close()
        assert (await (await opened(worlds)).step("say new")).observation.text == "1 new"


@pytest.mark.parametrize("action", ["sleep 60", "die", "stop"])
async def test_a_hung_or_dead_worker_is_replaced(action: str) -> None:
    """Its open episodes become world errors, its children die, and the pool goes on."""
    async with pool(workers=2, slots=2, call_s=1.0) as worlds:
        worlds_open = [await opened(worlds) for _ in range(4)]
        broken = worlds_open[0]
        sibling = next(w for w in worlds_open[1:] if w._worker is broken._worker)
        stranger = next(w for w in worlds_open if w._worker is not broken._worker)
        await sibling.step("child x")
        old = family(broken._worker._process.pid, broken._worker._token)
        assert len(old) == 2
        began = time.monotonic()
        with pytest.raises(WorldError, match="killed"):
            await broken.step(action)
        assert time.monotonic() - began < 5
        assert not any(map(alive, old))
        with pytest.raises(WorldError, match="replaced"):
            await sibling.step("say x")
        assert (await stranger.step("say y")).observation.text == "1 y"
        await broken.close()
        assert (await (await opened(worlds)).step("say z")).observation.text == "1 z"


async def test_the_clock_starts_when_a_call_is_sent() -> None:
    """A call that queues behind another one of the same worker is not charged for the wait."""
    async with pool(slots=3, call_s=1.5) as worlds:
        three = [await opened(worlds) for _ in range(3)]
        steps = await asyncio.gather(*(w.step("sleep 0.8") for w in three))
        assert [s.observation.text for s in steps] == ["1 0.8"] * 3


async def test_a_cancelled_call_leaves_no_answer_behind() -> None:
    """The next call of the same worker gets its own answer, not the cancelled one's."""
    async with pool(slots=2) as worlds:
        one, two = await opened(worlds), await opened(worlds)
        call = asyncio.create_task(one.step("sleep 0.4"))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await two.step("say mine")).observation.text == "1 mine"


async def test_a_worker_that_cannot_start_is_tried_a_few_times() -> None:
    """The error after the last try names the exit code; nothing waits forever."""
    async with pool(factory=Unstartable(), start_tries=2) as worlds:
        world = await worlds.acquire()
        with pytest.raises(WorldError, match=r"in 2 tries.*exit code 3"):
            await world.reset("task", 0, {})


async def test_close_ends_a_pool_with_a_call_in_the_air() -> None:
    """Closing does not wait for a hung call, leaves no process, and can be done twice."""
    async with pool(workers=2, call_s=60) as worlds:
        world = await opened(worlds)
        await world.step("child x")
        living = pids(worlds)
        assert len(living) == 2
        call = asyncio.create_task(world.step("sleep 50"))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await worlds.close()
        await worlds.close()
        assert time.monotonic() - began < 5
        with pytest.raises(WorldError):
            await call
        assert not any(map(alive, living))
        with pytest.raises(WorldError, match="closed"):
            await worlds.acquire()


def test_a_pool_serves_one_event_loop_after_another() -> None:
    """Each training iteration may run in a loop of its own; workers live on."""
    worlds = ProcessWorlds(Toy, 1, 1)

    async def episode() -> str:
        world = await opened(worlds)
        calls = [asyncio.create_task(world.step("sleep 0.1")) for _ in range(2)]
        await asyncio.gather(*calls)
        await world.close()
        return str(pids(worlds))

    assert asyncio.run(episode()) == asyncio.run(episode())
    asyncio.run(worlds.close())


Families = list[tuple[int, str]]

PARENT = """
import asyncio, sys, time
sys.path[:0] = {paths!r}
from envs.workers import ProcessWorlds, Limits
from test_workers import Toy

async def main():
    worlds = ProcessWorlds(Toy, 2, 1)
    try:
        both = [await worlds.acquire() for _ in range(2)]
        for world in both:
            await world.reset("task", 0, {{}})
            await world.step("child x")
        print("ready", *(f"{{w._worker._process.pid}}:{{w._worker._token}}" for w in both), flush=True)
        await both[0].step("sleep 100")
    finally:
        await worlds.close()

if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("ended cleanly", flush=True)
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Families]]:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(PARENT).format(paths=[str(HERE.parents[2]), str(HERE.parent)])
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    said = process.stdout.readline().split()
    tokens = [(int(pid), token) for pid, _, token in (word.partition(":") for word in said[1:])]
    try:
        assert said[:1] == ["ready"]
        assert [len(family(*each)) for each in tokens] == [2, 2]
        yield process, tokens
    finally:
        kill_family(process.pid, "none")
        process.wait()


def gone(tokens: Families, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while any(family(*each) for each in tokens):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_a_killed_parent_leaves_nothing(
    parent: tuple[subprocess.Popen[str], Families], tmp_path: Path
) -> None:
    """SIGKILL of the parent, a call in the air: workers and their children die, folders go too."""
    process, tokens = parent
    assert list(tmp_path.glob("arlas-worker-*"))
    process.kill()
    process.wait()
    assert gone(tokens)
    time.sleep(0.2)
    assert not list(tmp_path.glob("arlas-worker-*"))


def test_ctrl_c_is_the_parents_alone(parent: tuple[subprocess.Popen[str], Families]) -> None:
    """Ctrl-C goes to the terminal's whole process group: the parent closes, no worker complains."""
    process, tokens = parent
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=15)
    assert "ended cleanly" in out
    assert "Traceback" not in err
    assert gone(tokens)


def test_partial_factories_travel() -> None:
    """A factory with arguments is picklable, so configs reach the worker."""

    async def once() -> str:
        async with pool(factory=partial(Toy)) as worlds:
            return str((await (await opened(worlds)).step("say hi")).observation.text)

    assert asyncio.run(once()) == "1 hi"
