"""A model behind an OpenAI-compatible endpoint, as a teacher or an opponent. Never for RL.

In ``chat`` mode the endpoint gets the messages and answers with text, which is encoded with the main model's
tokenizer: tokens that the main model never sampled, with log-probabilities of zero. In ``completions`` mode it
gets token ids, so its tokenizer must be the main model's; ids and log-probabilities are the server's own if it
gives them (vLLM's does).
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arlas.types import (
    AdapterError,
    Choice,
    Completion,
    ConfigurationError,
    MissingExtraError,
    PolicyError,
    Request,
    Sampling,
    StopReason,
)

_RETRIED = (408, 409, 429)
"""Besides all of 500 and more: statuses that may pass."""
_MAX_DELAY = 30.0


class Mode(Choice):
    """Which endpoint is asked."""

    CHAT = "chat"
    COMPLETIONS = "completions"


@dataclass
class OpenAIConfig:
    """A remote model. ``teachers: {NAME: …}`` lets policies of version NAME play through it."""

    base_url: str = "http://127.0.0.1:8000/v1"
    model: str = "default"
    mode: Mode = Mode.CHAT
    api_key_env: str | None = None
    """Name of the environment variable with the key; None for servers that ask for none."""
    timeout: float = 120.0
    """Seconds for one try."""
    max_retries: int = 4
    backoff: float = 0.5
    """Seconds before the first retry; doubled for each one after, up to 30."""
    concurrency: int = 16
    """Requests at the endpoint at once."""
    max_tokens_name: str = "max_tokens"
    """What the endpoint calls the limit; OpenAI's newer models want max_completion_tokens."""

    def build(self, tokenizer: Any) -> OpenAIPolicy:
        """A client whose replies are in the tokens of ``tokenizer``. Nothing is sent yet.

        Raises `MissingExtraError` without the package, `ConfigurationError` if the key is not set.
        """
        if importlib.util.find_spec("openai") is None:
            raise MissingExtraError(
                'teacher=openai needs the package openai: pip install -e ".[openai]"'
            )
        if self.mode not in tuple(Mode):
            raise ConfigurationError(f"mode must be chat or completions, got {self.mode}")
        if self.concurrency < 1 or self.max_retries < 0 or self.timeout <= 0:
            raise ConfigurationError("concurrency ≥ 1, max_retries ≥ 0 and timeout > 0 are needed")
        key = "none" if self.api_key_env is None else os.environ.get(self.api_key_env, "")
        if not key:
            raise ConfigurationError(
                f"the endpoint {self.base_url} needs a key: set the environment variable {self.api_key_env}"
            )
        return OpenAIPolicy(self, tokenizer, key)


class OpenAIPolicy:
    """A `arlas.policies.base.Policy` without adapters. What the model writes is data and nothing else."""

    def __init__(self, config: OpenAIConfig, tokenizer: Any, key: str) -> None:
        self.tokenizer = tokenizer
        self._config = config
        self._key = key
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def complete(self, request: Request) -> Completion:
        """Asks the endpoint, trying again with growing pauses after faults that may pass.

        Raises `PolicyError` when the tries are used up, at once if the endpoint refuses the request.
        """
        import openai

        if self._closed:
            raise PolicyError("the client was closed")
        if request.policy.adapter is not None:
            raise AdapterError(
                f"{self._config.base_url} serves no adapter {request.policy.adapter}"
            )
        self._connect(openai)
        problem = ""
        for attempt in range(self._config.max_retries + 1):
            if attempt:
                await asyncio.sleep(min(self._config.backoff * 2 ** (attempt - 1), _MAX_DELAY))
            try:
                async with self._slots:
                    # The client's own limit starts anew with every byte: a server that drips would hang.
                    reply = await asyncio.wait_for(self._send(request), self._config.timeout)
                return self._read(request, reply)
            except openai.APIStatusError as error:
                problem = f"status {error.status_code}: {str(error)[:300]}"
                if error.status_code < 500 and error.status_code not in _RETRIED:
                    break
            except (openai.OpenAIError, TimeoutError, ValueError, RecursionError) as error:
                problem = f"{type(error).__name__}: {str(error)[:300]}"
        raise PolicyError(
            f"{self._config.base_url} gave no usable reply in {attempt + 1} tries: {problem}"
        )

    def load_adapter(self, name: str, path: Path) -> None:
        """Raises `AdapterError`: the endpoint serves what it serves."""
        raise AdapterError(f"{self._config.base_url} cannot load adapters; use policy=vllm or hf")

    def unload_adapter(self, name: str) -> None:
        """Nothing to forget."""

    def adapters(self) -> tuple[str, ...]:
        """None."""
        return ()

    def close(self) -> None:
        """Refuses further requests. Safe to call twice."""
        self._closed = True

    def _connect(self, openai: Any) -> None:
        """Connections and slots belong to one event loop; another one gets its own."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._slots = asyncio.Semaphore(self._config.concurrency)
            self._client = openai.AsyncOpenAI(
                base_url=self._config.base_url,
                api_key=self._key,
                timeout=self._config.timeout,
                max_retries=0,
            )

    async def _send(self, request: Request) -> Any:
        config, sampling = self._config, request.sampling
        shared = {
            "model": config.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request.seed % 2**31,
        }
        extra = {config.max_tokens_name: sampling.max_tokens, **_beyond(sampling)}
        if config.mode == Mode.CHAT:
            if not request.messages:
                raise PolicyError(
                    "the request has no messages; an endpoint in chat mode reads them"
                )
            messages = [{"role": m.role, "content": m.content} for m in request.messages]
            return await self._client.chat.completions.create(
                messages=messages, extra_body=extra, **shared
            )
        extra |= {"return_token_ids": True, "add_special_tokens": False}
        return await self._client.completions.create(
            prompt=list(request.prompt_ids), logprobs=0, extra_body=extra, **shared
        )

    def _read(self, request: Request, reply: Any) -> Completion:
        """Raises ValueError at anything that is not a whole reply."""
        choices = getattr(reply, "choices", None)
        if not isinstance(choices, list) or len(choices) != 1:
            raise ValueError("a reply without a choice")
        choice = choices[0]
        reason = getattr(choice, "finish_reason", None)
        if reason not in ("stop", "length"):
            raise ValueError(f"the reply ended with {str(reason)[:40]!r}")
        chat = self._config.mode == Mode.CHAT
        ids = None if chat else getattr(choice, "token_ids", None)
        if ids is not None:
            return self._served(request, choice, ids, StopReason(reason))
        said = getattr(choice, "message", None) if chat else choice
        text = getattr(said, "content" if chat else "text", None)
        if not isinstance(text, str):
            raise ValueError("a reply without text")
        text = text.encode("utf-8", "replace").decode()  # JSON can hold half a character
        # Names of special tokens in the text stay text: a remote model cannot end or open a turn with them.
        encoded = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        if reason == "stop" and self.tokenizer.eos_token_id is not None:
            encoded = [*encoded, self.tokenizer.eos_token_id]
        limit = request.sampling.max_tokens
        if len(encoded) > limit:  # the endpoint counts other tokens, or does not count
            encoded, reason = encoded[:limit], "length"
        return Completion(tuple(encoded), (0.0,) * len(encoded), StopReason(reason), request.policy)

    def _served(self, request: Request, choice: Any, ids: Any, reason: StopReason) -> Completion:
        """The server's own tokens, once they are checked."""
        size = len(self.tokenizer)
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < size for i in ids):
            raise ValueError("the reply's token_ids are not ids of the main tokenizer")
        if len(ids) > request.sampling.max_tokens:
            raise ValueError("the reply is longer than max_tokens")
        logprobs = getattr(getattr(choice, "logprobs", None), "token_logprobs", None)
        if logprobs is None:
            logprobs = [0.0] * len(ids)
        good = isinstance(logprobs, list) and len(logprobs) == len(ids)
        if not good or not all(type(x) in (int, float) and math.isfinite(x) for x in logprobs):
            raise ValueError("the reply's token_logprobs do not belong to its token_ids")
        return Completion(tuple(ids), tuple(float(x) for x in logprobs), reason, request.policy)


def _beyond(sampling: Sampling) -> dict[str, float]:
    """Settings that the OpenAI protocol lacks, sent only where they differ from its behaviour."""
    named = {
        "top_k": (sampling.top_k, 0),
        "min_p": (sampling.min_p, 0.0),
        "repetition_penalty": (sampling.repetition_penalty, 1.0),
    }
    return {name: value for name, (value, neutral) in named.items() if value != neutral}
