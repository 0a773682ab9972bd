"""The one thread that owns a vLLM engine, between event loops on one side and the engine on the other."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from arlas.types import PolicyError

T = TypeVar("T")


@dataclass(frozen=True)
class _Waiting:
    """Who waits for a request, and with which adapter it runs."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    adapter: int

    def settle(self, result: Any = None, error: Exception | None = None) -> None:
        def settle() -> None:
            if not self.future.done():
                if error is None:
                    self.future.set_result(result)
                else:
                    self.future.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self.loop.call_soon_threadsafe(settle)


class EngineThread:
    """The one thread that touches a vLLM ``LLMEngine``: it obeys orders and steps while requests run.

    An exception out of a step ends the thread; everybody who waits, then or later, gets a `PolicyError`.
    """

    def __init__(self, start: Callable[[], Any]) -> None:
        self._orders: queue.SimpleQueue[Callable[[Any], None] | None] = queue.SimpleQueue()
        self._waiting: dict[str, _Waiting] = {}
        self._retired: set[int] = set()
        self._end: str | None = None
        self._lock = threading.Lock()
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(start, started), name="vllm-engine", daemon=True
        )
        self._thread.start()
        started.result()
        atexit.register(
            self.close
        )  # an engine still running when the interpreter ends would crash it

    def submit(
        self, id: str, prompt_ids: tuple[int, ...], params: Any, adapter: Any
    ) -> asyncio.Future[Any]:
        """Queues a request; the future of the running event loop gets vLLM's finished ``RequestOutput``."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(loop, loop.create_future(), adapter.lora_int_id)

        def add(engine: Any) -> None:
            prompt = {"type": "token", "prompt_token_ids": list(prompt_ids)}
            try:
                engine.add_request(id, prompt, params, lora_request=adapter)
            except Exception as error:  # vLLM's validation: this request alone is at fault
                waiting.settle(error=PolicyError(f"vLLM refused the request: {error}"))
            else:
                self._waiting[id] = waiting

        self._post(add)
        return waiting.future

    def abort(self, id: str) -> None:
        """Takes a request out of the engine; nobody waits for it any more."""

        def drop(engine: Any) -> None:
            if self._waiting.pop(id, None) is not None:
                engine.abort_request([id])

        with contextlib.suppress(PolicyError):  # an engine that has ended runs nothing
            self._post(drop)

    def retire(self, adapter: int) -> None:
        """Removes an adapter from the engine as soon as no request runs with it."""
        with contextlib.suppress(PolicyError):
            self._post(lambda _: self._retired.add(adapter))

    def ask(self, question: Callable[[Any], T]) -> T:
        """Runs ``question(engine)`` between two steps and waits for its answer."""
        answer: Future[T] = Future()

        def put(engine: Any) -> None:
            try:
                answer.set_result(question(engine))
            except Exception as error:
                answer.set_exception(error)

        self._post(put)
        return answer.result()

    def close(self) -> None:
        """Ends the thread and frees the engine; requests that still wait get a `PolicyError`."""
        atexit.unregister(self.close)
        self._orders.put(None)
        self._thread.join()

    def _post(self, order: Callable[[Any], None]) -> None:
        with self._lock:
            if self._end is not None:
                raise PolicyError(self._end)
            self._orders.put(order)

    def _run(self, start: Callable[[], Any], started: Future[None]) -> None:
        try:
            # A thread has an OpenMP setting of its own; vLLM's kernels should use as many as torch does.
            torch.set_num_threads(torch.get_num_threads())
            engine = start()
        except BaseException as error:
            self._end = f"the vLLM engine did not start: {error!r}"
            started.set_exception(error)
            return
        end = "the vLLM engine was closed"
        started.set_result(None)
        try:
            while self._obey(engine):
                for output in engine.step() if engine.has_unfinished_requests() else ():
                    if output.finished and (waiting := self._waiting.pop(output.request_id, None)):
                        waiting.settle(output)
        except BaseException as error:
            end = f"the vLLM engine stopped at a fault: {error!r}"
        finally:
            with self._lock:
                self._end = end
            while not self._orders.empty():  # requests among them join those that wait
                if (order := self._orders.get()) is not None:
                    with contextlib.suppress(PolicyError):
                        order(_Ended(end))
            for waiting in self._waiting.values():
                waiting.settle(error=PolicyError(end))
            self._waiting.clear()
            with contextlib.suppress(Exception):
                engine.engine_core.shutdown()

    def _obey(self, engine: Any) -> bool:
        """Follows the orders at hand, waiting for one if there is nothing else to do. False ends it."""
        for adapter in self._retired - {w.adapter for w in self._waiting.values()}:
            self._retired.discard(adapter)
            engine.remove_lora(adapter)
        while not self._orders.empty() or not (engine.has_unfinished_requests() or self._retired):
            order = self._orders.get()
            if order is None:
                return False
            order(engine)
        return True


class _Ended:
    """Stands in for an engine that is gone: whatever is asked of it fails with the reason."""

    def __init__(self, end: str) -> None:
        self._end = end

    def __getattr__(self, name: str) -> Any:
        raise PolicyError(self._end)
