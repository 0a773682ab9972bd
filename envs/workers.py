"""Gymnasium environments in worker processes, spoken to by messages from asyncio.

Each worker hosts several slots, each slot one environment. A worker plays one call at a time; a call
that takes too long, or a worker that dies, costs the worker's open episodes and nothing else: the
worker's whole process family is killed and the next call starts a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import multiprocessing.connection
import os
import shutil
import signal
import tempfile
import threading
import traceback
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium

from envs.base import Observation, Start, Step, World, WorldError
from envs.local import plant_of, start_of, step_of
from envs.processes import TOKEN, kill_family, without_main_module

EnvFactory = Callable[[], "gymnasium.Env[Any, Any]"]

# Characters of one message; below a socket's buffer, so that sending never blocks.
_MAX_TEXT = 60_000
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Limits:
    """Wall-clock limits in seconds, counted from the moment a call is sent."""

    call_s: float = 30.0
    first_call_s: float = 120.0
    """The first reset of a slot in a fresh worker, which may start a browser."""
    start_s: float = 60.0
    start_tries: int = 3


# --- the worker's side ----------------------------------------------------------------------------------


def _serve(conn: Connection, factory: EnvFactory, token: str, folder: str) -> None:
    """The worker's life: answers calls until the pipe closes."""
    os.setsid()  # no Ctrl-C of the terminal reaches the worker or its children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ[TOKEN] = token
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans stay in the family
    threading.Thread(target=_die_with_parent, args=(token, folder), daemon=True).start()
    os.mkdir(folder, mode=0o700)
    os.environ["TMPDIR"] = tempfile.tempdir = folder  # a killed browser leaves its profile there
    envs: dict[int, gymnasium.Env[Any, Any]] = {}
    try:
        conn.send(("ready", None))
        while True:
            kind, slot, arguments = conn.recv()
            if kind == "exit":
                break
            try:
                reply: tuple[str, Any] = ("ok", _play(envs, factory, kind, slot, arguments))
            except (
                BaseException
            ) as error:  # SystemExit too: nothing an environment does ends the worker
                reply = ("error", _told(error))
                _drop(envs, slot)
            conn.send(reply)
    except (EOFError, OSError):
        pass
    for slot in list(envs):
        _drop(envs, slot)
    _end_family(token, folder)


def _play(
    envs: dict[int, gymnasium.Env[Any, Any]],
    factory: EnvFactory,
    kind: str,
    slot: int,
    arguments: tuple[Any, ...],
) -> Start | Observation | Step:
    if kind == "reset":
        task, seed, user = arguments
        if slot not in envs:
            envs[slot] = factory()
        return start_of(*envs[slot].reset(seed=seed, options={"task": task, "user": user}))
    if kind == "plant":
        return plant_of(envs[slot], *arguments)
    return step_of(*envs[slot].step(*arguments))


def _told(error: BaseException) -> str:
    if isinstance(error, WorldError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(where[-1].filename).name}:{where[-1].lineno})" if where else ""
    return f"{type(error).__name__}: {error}{place}"[:4000]


def _drop(envs: dict[int, gymnasium.Env[Any, Any]], slot: int) -> None:
    env = envs.pop(slot, None)
    if env is not None:
        with contextlib.suppress(BaseException):  # it may be thrown away because it is broken
            env.close()


def _die_with_parent(token: str, folder: str) -> None:
    """Waits for the parent's death, however it comes, and takes the whole family along."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    while not multiprocessing.connection.wait([parent.sentinel], timeout=1.0):
        if os.getppid() != parent.pid:  # the sentinel's other end may live on in a forked sibling
            break
    _end_family(token, folder)
    os._exit(1)


def _end_family(token: str, folder: str) -> None:
    kill_family(os.getpid(), token, spare=os.getpid())
    shutil.rmtree(folder, ignore_errors=True)


# --- the parent's side ----------------------------------------------------------------------------------


class _Worker:
    """One worker process, started when first needed and again after its death."""

    def __init__(self, factory: EnvFactory, limits: Limits) -> None:
        self.open = 0
        self.lock = asyncio.Lock()
        self._generation = 0
        self._warm: set[int] = set()
        self._closed = False
        self._factory = factory
        self._limits = limits
        self._process: multiprocessing.process.BaseProcess | None = None
        self._conn: Connection | None = None
        self._token = ""
        self._folder = ""

    async def call(self, world: _ProcessWorld, kind: str, arguments: tuple[Any, ...]) -> Any:
        """Plays one call of an episode. Raises `WorldError`."""
        # A cancelled caller must not leave a reply in the pipe for the next one.
        task = asyncio.create_task(self._locked_call(world, kind, arguments))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _locked_call(
        self, world: _ProcessWorld, kind: str, arguments: tuple[Any, ...]
    ) -> Any:
        async with self.lock:
            if kind != "reset" and world.generation != self._generation:
                raise WorldError(f"{kind}: the worker of this episode was replaced")
            if self._closed:
                raise WorldError(f"{kind}: the pool is closed")
            if self._conn is None:
                await self._start()
            world.generation = self._generation
            fresh = kind == "reset" and world.slot not in self._warm
            limit = (
                max(self._limits.first_call_s, self._limits.call_s)
                if fresh
                else self._limits.call_s
            )
            try:
                status, value = await self._exchange((kind, world.slot, arguments), limit)
            except WorldError as error:
                await asyncio.to_thread(self.kill)
                raise WorldError(f"{kind}: {error}; the worker was killed") from None
            except asyncio.CancelledError:  # the loop is ending
                self.kill()
                raise
            if status == "error":
                self._warm.discard(world.slot)
                raise WorldError(f"{kind}: {value}")
            self._warm.add(world.slot)
            return value

    async def _exchange(self, message: Any, limit: float) -> tuple[str, Any]:
        assert self._conn is not None
        try:
            if message is not None:
                self._conn.send(message)
            await _readable(self._conn, limit)
            reply: tuple[str, Any] = self._conn.recv()
        except TimeoutError:
            raise WorldError(f"no answer within {limit:g} s") from None
        except (EOFError, OSError) as error:
            raise WorldError(f"the worker died ({type(error).__name__})") from None
        return reply

    async def _start(self) -> None:
        for attempt in range(1, self._limits.start_tries + 1):
            self._spawn()
            try:
                await self._exchange(None, self._limits.start_s)
                return
            except WorldError as error:
                assert self._process is not None
                await asyncio.to_thread(self._process.join, 1.0)  # a dead one has its code soon
                code = self._process.exitcode
                await asyncio.to_thread(self.kill)
                if attempt == self._limits.start_tries or self._closed:
                    raise WorldError(
                        f"no worker could be started in {attempt} tries: {error}, exit code {code}; "
                        "its standard error says why"
                    ) from None
                await asyncio.sleep(0.2 * attempt)

    def _spawn(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._token = uuid.uuid4().hex
        self._folder = os.path.join(tempfile.gettempdir(), f"arlas-worker-{self._token}")
        self._conn, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, self._factory, self._token, self._folder),
            daemon=True,
            name="arlas-world",
        )
        blocked = signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT}
        )  # inherited until setsid
        try:
            with without_main_module():
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            theirs.close()

    def kill(self) -> None:
        """Kills the worker and everything it started. Open episodes of it are lost."""
        process, conn, self._process, self._conn = self._process, self._conn, None, None
        self._warm.clear()
        self._generation += 1
        if process is not None:
            if process.pid is not None:
                kill_family(process.pid, self._token)
            process.join(timeout=5)
            shutil.rmtree(self._folder, ignore_errors=True)
        if conn is not None:
            conn.close()

    async def stop(self) -> None:
        """Lets an idle worker close its environments for two seconds, then kills what is left."""
        self._closed = True
        process = self._process
        if self.lock.locked() and process is not None and process.pid is not None:
            # A call is in the air: its end of file ends the call, which cleans up after itself.
            await asyncio.to_thread(kill_family, process.pid, self._token)
        async with self.lock:
            if self._conn is not None:
                with contextlib.suppress(WorldError):
                    await self._exchange(("exit", 0, ()), 2.0)  # ends with an end of file
            await asyncio.to_thread(self.kill)


async def _readable(conn: Connection, limit: float) -> None:
    """Waits until a connection has something to read. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(conn.fileno(), wake)
    try:
        await asyncio.wait_for(ready, limit)
    finally:
        loop.remove_reader(conn.fileno())


class _ProcessWorld:
    """A `World` handle on one slot of one worker."""

    def __init__(self, pool: ProcessWorlds, worker: _Worker, slot: int) -> None:
        self._pool = pool
        self._worker = worker
        self.slot = slot
        self.generation = 0
        self._error: str | None = None
        self._closed = False

    async def reset(self, task: str, seed: int, user: Mapping[str, str]) -> Start:
        start: Start = await self._call("reset", task, seed, dict(user))
        return start

    async def plant(self, text: str) -> Observation:
        observation: Observation = await self._call("plant", text[:_MAX_TEXT])
        return observation

    async def step(self, action: str) -> Step:
        step: Step = await self._call("step", action[:_MAX_TEXT])
        return step

    async def _call(self, kind: str, *arguments: Any) -> Any:
        if self._closed:
            raise WorldError(f"{kind}: this world was given back")
        if self._error is not None:
            raise WorldError(f"{kind}: this episode has failed before: {self._error}")
        try:
            return await self._worker.call(self, kind, arguments)
        except WorldError as error:
            self._error = str(error)
            raise

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool._give_back(self._worker, self.slot)


class ProcessWorlds:
    """A pool of ``workers`` processes with ``slots`` environments each, made by ``factory`` in the worker.

    ``factory`` must be picklable. The pool may be used from one event loop after another, not from two
    at once.
    """

    def __init__(
        self, factory: EnvFactory, workers: int = 1, slots: int = 1, limits: Limits | None = None
    ) -> None:
        if workers < 1 or slots < 1:
            raise ValueError(f"workers and slots must be at least 1, got {workers} and {slots}")
        self.capacity = workers * slots
        limits = limits or Limits()
        self._workers = [_Worker(factory, limits) for _ in range(workers)]
        self._free = [(worker, slot) for slot in range(slots) for worker in self._workers]
        self._waiting: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._finalizer = weakref.finalize(self, _kill_all, self._workers)

    async def acquire(self) -> World:
        """Waits for a free slot, on the worker with the fewest open episodes."""
        self._use_running_loop()
        while not self._free:
            if self._closed:
                break
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            finally:
                if turn in self._waiting:
                    self._waiting.remove(turn)
        if self._closed:
            raise WorldError("the pool is closed")
        worker, slot = min(self._free, key=lambda pair: pair[0].open)
        self._free.remove((worker, slot))
        worker.open += 1
        return _ProcessWorld(self, worker, slot)

    def _use_running_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # locks of a finished loop cannot be waited for in this one
            self._loop = loop
            self._waiting.clear()
            for worker in self._workers:
                worker.lock = asyncio.Lock()

    def _give_back(self, worker: _Worker, slot: int) -> None:
        worker.open -= 1
        self._free.append((worker, slot))
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                if not self._closed:
                    return

    async def close(self) -> None:
        """Ends every worker. Safe to call twice."""
        self._use_running_loop()
        self._closed = True
        self._wake()
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._finalizer.detach()


def _kill_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.kill()
