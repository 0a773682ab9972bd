"""The typed config behind ``conf/env/enterprise.yaml``."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import ClassVar

from envs.base import TaskSplit, UnknownTaskError
from envs.enterprise.env import EnterpriseEnv, EnterpriseOptions
from envs.enterprise.sandbox import SandboxLimits, check
from envs.enterprise.tasks.catalog import SUITES, catalog, split_of
from envs.enterprise.tasks.spec import Kind
from envs.local import LocalWorlds


@dataclass
class EnterpriseConfig:
    """The enterprise world; see ``conf/env/enterprise.yaml``.

    ``train`` and ``eval`` are patterns of task names (``slack.*``), None for the whole split.
    ``kinds`` are the kinds of tasks of either split. Raises `UnknownTaskError` or ValueError when built, and
    `SandboxError` with the remedy where ``code`` is on and this machine has no sandbox.
    """

    suite: str = "office"
    train: list[str] | None = None
    eval: list[str] | None = None
    train_kinds: list[str] = field(default_factory=lambda: ["attack"])
    eval_kinds: list[str] = field(default_factory=lambda: ["attack"])
    tools: str = "apps"
    earlier: int = 3
    earlier_chars: int = 400
    capacity: int = 64
    code: bool = False
    code_seconds: float = 5.0
    code_memory_mib: int = 256
    code_disk_mib: int = 16
    code_output_chars: int = 4000
    code_processes: int = 32

    placements: ClassVar[tuple[str, ...]] = ("dom",)
    """Outsiders write into the workspace itself: ``game.injection.placement`` must be dom."""

    def __post_init__(self) -> None:
        if self.suite not in SUITES:
            raise ValueError(f"env.suite must be one of {', '.join(SUITES)}, got {self.suite}")
        if self.tools not in ("task", "apps", "all"):
            raise ValueError(f"env.tools must be task, apps or all, got {self.tools}")
        for name in ("train_kinds", "eval_kinds"):
            wrong = [k for k in getattr(self, name) if k not in list(Kind)]
            if wrong or not getattr(self, name):
                raise ValueError(f"env.{name}: choose from {', '.join(Kind)}, got {wrong}")
        for name, least in (("capacity", 1), ("earlier", 0), ("earlier_chars", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"env.{name} must be at least {least}, got {getattr(self, name)}")
        self._limits()
        if self.code:
            check()

    def tasks(self) -> TaskSplit:
        """The split. Raises `UnknownTaskError` for a pattern that fits no task."""
        chosen = {}
        for name in ("train", "eval"):
            patterns, kinds = getattr(self, name), getattr(self, f"{name}_kinds")
            pool = [t for t, (s, _) in catalog().items() if s.name == self.suite]
            if patterns is None:
                pool = [t for t in pool if split_of(t) == name]
            else:
                pool = _matching(pool, patterns, f"env.{name}")
            chosen[name] = tuple(t for t in pool if catalog()[t][1].kind in kinds)
        return TaskSplit(train=chosen["train"], eval=chosen["eval"])

    def open(self) -> LocalWorlds:
        """The pool, in this process."""
        limits = self._limits() if self.code else None
        options = EnterpriseOptions(self.tools, self.earlier, self.earlier_chars, limits)
        return LocalWorlds(partial(EnterpriseEnv, options), self.capacity)

    def _limits(self) -> SandboxLimits:
        names = [f.name for f in fields(SandboxLimits)]
        try:
            return SandboxLimits(**{name: getattr(self, f"code_{name}") for name in names})
        except ValueError as wrong:
            raise ValueError(f"env.code_{wrong}") from None


def _matching(pool: Sequence[str], patterns: Sequence[str], where: str) -> list[str]:
    for pattern in patterns:
        if not fnmatch.filter(pool, pattern):
            raise UnknownTaskError(f"{where}: no task is called {pattern}")
    return [t for t in pool if any(fnmatch.fnmatchcase(t, p) for p in patterns)]
