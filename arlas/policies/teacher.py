"""Another model in this process as a teacher or an opponent, beside the main engine and never for RL.

It has its own tokenizer and chat template. What it says is encoded with the main model's tokenizer: tokens that the
main model never sampled, with log-probabilities of zero.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arlas.chat import Chat
from arlas.config import LoraConfig
from arlas.policies.base import Policy
from arlas.types import AdapterError, Completion, ConfigurationError, Request, StopReason


@dataclass
class TeacherConfig:
    """A teacher by configuration; see ``conf/teacher/model.yaml``."""

    engine: Any
    """The config of an engine, as of ``policy=hf`` or ``policy=vllm``."""

    def build(self, tokenizer: Any) -> Teacher:
        """Loads the model. Raises `ConfigurationError` if ``engine`` is no engine's config."""
        if not hasattr(self.engine, "build"):
            raise ConfigurationError(
                "teacher.engine: expected a mapping with _target_, see conf/policy/"
            )
        return Teacher(self.engine.build(LoraConfig()), tokenizer)


class Teacher:
    """A `arlas.policies.base.Policy` without adapters that answers in the tokens of ``tokenizer``."""

    def __init__(self, engine: Policy, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._engine = engine
        self._own, self._main = Chat(engine.tokenizer), Chat(tokenizer)

    async def complete(self, request: Request) -> Completion:
        """Asks the model with ``request.messages`` in its own template.

        A reply that does not fit ``max_tokens`` of the main model is cut there.
        """
        if request.policy.adapter is not None:
            raise AdapterError(f"a teacher serves no adapter {request.policy.adapter}")
        prompt_ids = self._own.render(request.messages)
        said = await self._engine.complete(dataclasses.replace(request, prompt_ids=prompt_ids))
        ids = self._main.encode(self._own.decode(said.token_ids))
        if said.stop_reason is StopReason.STOP:
            ids = (*ids, self._main.end_of_turn)
        limit = request.sampling.max_tokens
        stop = said.stop_reason if len(ids) <= limit else StopReason.LENGTH
        return Completion(ids[:limit], (0.0,) * len(ids[:limit]), stop, request.policy)

    def load_adapter(self, name: str, path: Path) -> None:
        """Raises `AdapterError`: adapters belong to the main model."""
        raise AdapterError(f"a teacher takes no adapter, got {name} ({path})")

    def unload_adapter(self, name: str) -> None:
        """Does nothing: none is ever loaded."""

    def adapters(self) -> tuple[str, ...]:
        """No names."""
        return ()

    def close(self) -> None:
        """Frees the engine."""
        self._engine.close()
