"""The engine over transformers and PEFT: any causal language model, CPU or GPU, many adapters in one batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from arlas.config import LoraConfig
from arlas.policies.adapters import AdaptedModel
from arlas.policies.attention import GROUPED
from arlas.policies.decode import Engine, Row
from arlas.policies.models import check_adapter, load_model, load_tokenizer, stop_ids
from arlas.policies.sampling import uniforms
from arlas.types import (
    AdapterError,
    Completion,
    ConfigurationError,
    PolicyError,
    Request,
    StopReason,
)


@dataclass
class HFConfig:
    """`HFPolicy` by configuration; see ``conf/policy/hf.yaml``."""

    model: str = "smollm2"
    dtype: str = "auto"
    """A torch dtype; auto is float32 on a CPU and bfloat16 on a GPU."""
    device: str = "auto"
    """cpu, cuda, cuda:N; auto takes a GPU if there is one."""
    max_batch: int = 32
    """Rows decoded at once."""
    max_batch_tokens: int = 32768
    """Rows times the longest row's prompt and reply: bounds the memory of keys and values."""
    share_prefix: bool = True
    """Compute what prompts of a batch have in common once."""
    prefix_cache_tokens: int = 4096
    """Tokens whose keys and values are kept for later prompts. With 0 a run does not depend on what the
    engine did before, to the last bit."""
    attention: str = GROUPED
    """How attention is computed: arlas_grouped, or transformers' sdpa or eager."""

    def build(self, lora: LoraConfig) -> HFPolicy:
        """Loads the model. Adapters of any shape can be served, so ``lora`` does not matter here.

        Raises `ConfigurationError`, before anything is loaded, on values that cannot work here.
        """
        for name in ("max_batch", "max_batch_tokens"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"policy.{name} must be at least 1")
        if self.prefix_cache_tokens < 0:
            raise ConfigurationError("policy.prefix_cache_tokens must not be negative")
        if self.attention not in (GROUPED, "sdpa", "eager"):
            raise ConfigurationError(
                f"policy.attention must be {GROUPED}, sdpa or eager, got {self.attention}"
            )
        dtype = getattr(torch, self.dtype, None)
        if self.dtype != "auto" and not (
            isinstance(dtype, torch.dtype) and dtype.is_floating_point
        ):
            raise ConfigurationError(
                f"policy.dtype must be auto, float32, bfloat16 or float16, got {self.dtype}"
            )
        if self.device != "auto":
            _check_device(self.device)
        return HFPolicy(self)


def _check_device(name: str) -> None:
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigurationError(f"policy.device must be auto, cpu, cuda or cuda:N, got {name}")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= there:
        raise ConfigurationError(
            f"policy.device={name}: {there} GPUs are there; set policy.device=auto"
        )


class HFPolicy:
    """A `arlas.policies.base.Policy` over transformers and PEFT, with continuous batching.

    The model runs in a thread of its own, so worlds go on meanwhile. Before every batch the event loop is
    given time until no further request comes; what is batched then depends on the requests alone, so
    games whose worlds answer at once are the same to the last bit whenever they are played.
    """

    def __init__(self, config: HFConfig) -> None:
        device = config.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = config.dtype
        if dtype == "auto":
            dtype = "float32" if device == "cpu" else "bfloat16"
        self.config = config
        self.tokenizer = load_tokenizer(config.model)
        base = load_model(config.model, dtype, device, config.attention)
        text = base.config.get_text_config()
        self._context: int = getattr(text, "max_position_embeddings", None) or 1 << 30
        self._vocabulary: int = base.get_input_embeddings().num_embeddings
        self._adapted = AdaptedModel(base)
        self.engine = Engine(
            forward=self._adapted.forward,
            device=base.device,
            dtype=base.dtype,
            stop_ids=stop_ids(config.model, self.tokenizer),
            layer_windows=_layer_windows(text),
            window=getattr(text, "sliding_window", None),
            share_prefix=config.share_prefix,
            prefix_cache_tokens=config.prefix_cache_tokens,
        )
        self._inner: dict[str, str] = {}
        self._waiting: list[Row] = []
        self._sent: set[Row] = set()
        self._server: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hf-policy")
        self._lock = threading.Lock()
        self._interrupt = threading.Event()
        self._closed = False

    # --- the protocol --------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Completion:
        """Samples one completion; see `arlas.policies.base.Policy.complete`."""
        row = self._row(request)
        loop = asyncio.get_running_loop()
        row.tag = loop.create_future()
        self._waiting.append(row)
        self._interrupt.set()  # rows that are being decoded let this one join
        if self._server is None or self._server.done() or self._server.get_loop() is not loop:
            self._server = loop.create_task(self._serve())
        try:
            completion: Completion = await row.tag
        except asyncio.CancelledError:
            self._interrupt.set()
            raise
        return completion

    def load_adapter(self, name: str, path: Path) -> None:
        """Serves the adapter in ``path`` as ``name``. Raises `AdapterError` if it does not fit."""
        if name in self._inner:
            raise AdapterError(
                f"the adapter name {name!r} is in use; a new version needs a new name"
            )
        check_adapter(path, self.config.model)
        with self._between_steps():
            self._inner[name] = self._adapted.load(name, Path(path))

    def unload_adapter(self, name: str) -> None:
        """Forgets an adapter, its cached prefixes, and the requests that are being decoded with it."""
        if name not in self._inner:
            return
        with self._between_steps():
            inner = self._inner.pop(name)
            for row in [*self.engine.rows, *self._sent, *self._waiting]:
                if row.adapter == inner:
                    row.error = f"the adapter {name!r} was unloaded meanwhile"
            self.engine.store.drop(inner)
            self._adapted.delete(inner)

    def adapters(self) -> tuple[str, ...]:
        """Names of the loaded adapters."""
        return tuple(self._inner)

    def close(self) -> None:
        """Frees the model; requests on their way fail. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._interrupt.set()
        self._thread.shutdown(wait=True)
        for row in [*self.engine.reset(), *self._waiting]:
            row.error = "the engine was closed"
            self._resolve(row)
        self._waiting.clear()
        self._adapted.close()

    # --- inside --------------------------------------------------------------------------------------

    def _row(self, request: Request) -> Row:
        """Checks a request, so that it can only fail alone."""
        if self._closed:
            raise PolicyError("the engine is closed")
        name, prompt, most = request.policy.adapter, request.prompt_ids, request.sampling.max_tokens
        if name is not None and name not in self._inner:
            loaded = ", ".join(self._inner) or "none"
            raise AdapterError(f"adapter {name!r} is not loaded; loaded: {loaded}")
        if not prompt or most < 1:
            raise PolicyError("a request needs at least one prompt token and max_tokens ≥ 1")
        if not 0 <= min(prompt) <= max(prompt) < self._vocabulary:
            raise PolicyError(f"prompt tokens must lie in [0, {self._vocabulary})")
        if len(prompt) >= self._context:
            raise PolicyError(
                f"the prompt has {len(prompt)} tokens, the model's context {self._context}: "
                "lower game.max_prompt_tokens"
            )
        most = min(most, self._context - len(prompt))
        if len(prompt) + most > self.config.max_batch_tokens:
            raise PolicyError(
                f"{len(prompt)} prompt tokens and {most} to sample exceed policy.max_batch_tokens="
                f"{self.config.max_batch_tokens}: raise it, or lower game.max_prompt_tokens"
            )
        inner = None if name is None else self._inner[name]
        return Row(request, inner, uniforms(request.seed, most), most)

    async def _serve(self) -> None:
        """Batches what waits until nothing is left to do."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._settle()
                self._interrupt.clear()
                joining = self._joining()
                if not joining and not self.engine.rows:
                    self._adapted.rest()
                    return
                self._sent |= set(joining)
                for row in await loop.run_in_executor(self._thread, self._turn, joining):
                    self._resolve(row)
        finally:
            # Normally nothing is left. If the loop is being torn down, its requests die with it.
            for row in [*self._waiting, *self._sent]:
                if row.tag.get_loop() is loop:
                    row.tag.cancel()
            self._waiting = [row for row in self._waiting if not row.tag.done()]
            self._sent = {row for row in self._sent if not row.tag.done()}
            self._interrupt.set()
            if not self._closed:
                self._thread.submit(self._forget, loop)

    async def _settle(self) -> None:
        """Yields to the event loop until requests have stopped coming."""
        known, quiet = -1, 0
        while quiet < 16:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == known else 0
            known = len(self._waiting)

    def _joining(self) -> list[Row]:
        """Takes what may join from the front of the queue, first come first served."""
        rows: list[Row] = []
        live = self.engine.rows
        longest = max((r.room for r in live), default=0)
        while self._waiting and len(live) + len(rows) < self.config.max_batch:
            row = self._waiting[0]
            if row.tag.done() or row.error:
                self._resolve(self._waiting.pop(0))
                continue
            longest = max(longest, row.room)
            if (len(live) + len(rows) + 1) * longest > self.config.max_batch_tokens:
                break
            rows.append(self._waiting.pop(0))
        return rows

    def _turn(self, joining: Sequence[Row]) -> list[Row]:
        """In the engine's thread: lets rows join, then decodes until something happens."""
        mine = [*self.engine.rows, *joining]
        try:
            with self._lock, torch.inference_mode():
                done = self.engine.leave(_is_over) + [row for row in joining if _is_over(row)]
                fresh = [row for row in joining if not _is_over(row)]
                done += self.engine.admit(fresh, self.config.max_batch_tokens)
            while not done and not self._interrupt.is_set():
                with self._lock, torch.inference_mode():
                    if not self.engine.rows:
                        break
                    done = self.engine.step()
            return done
        except (
            Exception
        ) as error:  # out of memory, a broken model: these requests fail, the engine lives on
            self.engine.reset()
            for row in mine:
                row.error = row.error or f"{type(error).__name__}: {error}"
            return mine

    def _forget(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock, torch.inference_mode():
            self.engine.leave(lambda row: row.tag.get_loop() is loop and row.tag.done())

    def _resolve(self, row: Row) -> None:
        self._sent.discard(row)
        if row.tag.done() or row.tag.get_loop().is_closed():
            return
        if row.error is not None:
            row.tag.set_exception(PolicyError(f"policy=hf: {row.error}"))
            return
        stop = row.stop or StopReason.LENGTH
        done = Completion(tuple(row.tokens), tuple(row.logprobs), stop, row.request.policy)
        row.tag.set_result(done)

    def _between_steps(self) -> threading.Lock:
        """The lock under which adapters change; whatever is being decoded gives it up after a step."""
        if self._closed:
            raise PolicyError("the engine is closed")
        self._interrupt.set()
        return self._lock


def _is_over(row: Row) -> bool:
    """Whether a row failed, or nobody waits for it any more."""
    return row.error is not None or row.tag.done()


def _layer_windows(config: Any) -> dict[str, int | None] | None:
    """The sliding window of each layer type, None for models without layer types."""
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return None
    known = {"full_attention": None, "sliding_attention": getattr(config, "sliding_window", None)}
    unknown = sorted(set(kinds) - set(known))
    if unknown:
        raise ConfigurationError(
            f"policy=hf does not serve layers of type {', '.join(unknown)}: use policy=vllm"
        )
    return {kind: known[kind] for kind in known if kind in set(kinds) | {"full_attention"}}
