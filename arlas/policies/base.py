"""The one protocol of all policies: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from arlas.types import Completion, Request


class Policy(Protocol):
    """An engine that serves one base model and any number of named adapters over it.

    ``tokenizer`` is the transformers tokenizer of the base model. `complete` may be called many times at
    once from one event loop; the engine batches what waits, different adapters together.
    """

    tokenizer: Any

    async def complete(self, request: Request) -> Completion:
        """Samples one completion.

        Raises `arlas.types.PolicyError` on an engine fault and `arlas.types.AdapterError` if
        ``request.policy.adapter`` is not loaded.
        """
        ...

    def load_adapter(self, name: str, path: Path) -> None:
        """Serves the PEFT adapter in folder ``path`` as ``name``. A name is never reused.

        Raises `arlas.types.AdapterError` if the adapter was made for another base model.
        """
        ...

    def unload_adapter(self, name: str) -> None:
        """Forgets an adapter and every cached prefix computed with it. Unknown names are ignored."""
        ...

    def adapters(self) -> tuple[str, ...]:
        """Names of the loaded adapters."""
        ...

    def close(self) -> None:
        """Frees the engine. Safe to call twice."""
        ...


class Router:
    """Sends each request to the engine that its policy's version names, else to the main one.

    Lets a scripted or remote opponent play against an adapter of the main engine.
    """

    def __init__(self, main: Policy, others: Mapping[str, Policy] | None = None) -> None:
        self.main = main
        self.others = dict(others or {})
        self.tokenizer = main.tokenizer

    async def complete(self, request: Request) -> Completion:
        return await self.others.get(request.policy.version, self.main).complete(request)

    def load_adapter(self, name: str, path: Path) -> None:
        self.main.load_adapter(name, path)

    def unload_adapter(self, name: str) -> None:
        self.main.unload_adapter(name)

    def adapters(self) -> tuple[str, ...]:
        return self.main.adapters()

    def close(self) -> None:
        for policy in (self.main, *self.others.values()):
            policy.close()
