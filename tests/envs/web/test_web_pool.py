"""The web world through its worker processes: all tasks, and browsers that hang, die or are orphaned."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from envs.base import WorldError
from envs.processes import family, kill_family
from envs.web import WebConfig
from envs.web.tasks import task_names
from envs.workers import ProcessWorlds

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[3]


@asynccontextmanager
async def opened(**config: Any) -> AsyncIterator[ProcessWorlds]:
    worlds = WebConfig(**config).open()
    try:
        yield worlds
    finally:
        await worlds.close()


def chromiums(worlds: ProcessWorlds) -> list[int]:
    """The browser processes (not their renderers) that belong to a pool."""
    return [
        pid for w in worlds._workers if w._process for pid in browsers(w._process.pid, w._token)
    ]


def browsers(root: int | None, token: str) -> list[int]:
    found = []
    for pid in family(root or 0, token):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"--remote-debugging-pipe" in command and not command[0].endswith(b"/sh"):  # a wrapper
            found.append(pid)
    return found


async def test_every_task_resets_and_steps() -> None:
    """All 125 registered tasks begin with a goal and something to act on, and take a step, in two workers."""
    async with opened(workers=2, slots=1) as worlds:

        async def play(task: str) -> str | None:
            world = await worlds.acquire()
            try:
                start = await world.reset(task, 1, {})
                step = await world.step('press("1", "Tab")')
                return (
                    task
                    if not start.goal or "[1]" not in start.observation.text or step.error
                    else None
                )
            finally:
                await world.close()

        tasks = task_names(profiles=False)
        assert len(tasks) == 125
        failed = [task for task in await asyncio.gather(*map(play, tasks)) if task]
    # Drawings and buttons that only the mouse can reach take no key.
    assert not failed, failed


async def test_the_same_seed_gives_the_same_episode_in_any_worker() -> None:
    """Task and seed decide the goal and the page, whichever worker plays them."""
    async with opened(workers=2, slots=1) as worlds:
        both = [await worlds.acquire() for _ in range(2)]
        one, two = [await world.reset("miniwob.book-flight", 11, {}) for world in both]
        assert one == two
        other = await both[0].reset("miniwob.book-flight", 12, {})
        assert other.goal != one.goal


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_hung_or_dead_browser_is_replaced(blow: signal.Signals) -> None:
    """The episode ends as a world error within its time, the old browser is gone, the pool goes on."""
    async with opened(workers=1, slots=2, call_timeout_s=3) as worlds:
        world = await worlds.acquire()
        await world.reset("miniwob.click-test", 1, {})
        (browser,) = chromiums(worlds)
        os.kill(browser, blow)
        began = time.monotonic()
        with pytest.raises(WorldError):
            await world.step('click("1")')
        assert time.monotonic() - began < 8
        assert browser not in family(browser, "none")
        await world.close()
        world = await worlds.acquire()
        await world.reset("miniwob.click-test", 2, {})
        assert (await world.step('click("1")')).verdict.completion == 1.0
        assert chromiums(worlds) != [browser]


async def test_a_browser_that_cannot_start_is_told(tmp_path: Path) -> None:
    """A program that is no browser ends in a world error that names it, not in a hanging run."""
    fake = tmp_path / "chromium"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    async with opened(workers=1, slots=1, chromium=str(fake)) as worlds:
        world = await worlds.acquire()
        with pytest.raises(WorldError, match=f"{fake} did not start in 2 tries"):
            await world.reset("miniwob.click-test", 1, {})


async def test_closing_leaves_no_browser() -> None:
    """After `close`, nothing of the workers' families lives, and their folders are gone."""
    worlds = WebConfig(workers=2, slots=1).open()
    both = [await worlds.acquire() for _ in range(2)]
    await asyncio.gather(*(world.reset("miniwob.click-test", 1, {}) for world in both))
    living = chromiums(worlds)
    folders = [Path(w._folder) for w in worlds._workers]
    assert len(living) == 2
    assert all(any(folder.iterdir()) for folder in folders)
    await worlds.close()
    assert not [pid for pid in living if family(pid, "none")]
    assert not [folder for folder in folders if folder.exists()]


PARENT = """
import asyncio, sys
sys.path.insert(0, {root!r})
from envs.web import WebConfig

async def main():
    worlds = WebConfig(workers=1, slots=1).open()
    world = await worlds.acquire()
    await world.reset("miniwob.click-test", 1, {{}})
    print(worlds._workers[0]._process.pid, worlds._workers[0]._token, flush=True)
    await asyncio.sleep(100)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(root=str(ROOT)))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    pid, token = process.stdout.readline().split()
    try:
        yield process, int(pid), token
    finally:
        kill_family(process.pid, token)
        process.wait()


@pytest.mark.parametrize("hung", [False, True])
def test_a_killed_parent_leaves_no_chromium(
    orphan: tuple[subprocess.Popen[str], int, str], hung: bool
) -> None:
    """`kill -9` of the parent takes the worker and its browser along, even a browser that hangs."""
    process, worker, token = orphan
    (browser,) = browsers(worker, token)
    if hung:
        os.kill(browser, signal.SIGSTOP)
    process.kill()
    process.wait()
    end = time.monotonic() + 10
    while family(worker, token) and time.monotonic() < end:
        time.sleep(0.1)
    assert family(worker, token) == []
    assert family(browser, "none") == []
