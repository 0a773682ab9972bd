"""The typed config of the web world; chosen by ``_target_: envs.web.WebConfig``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium

from envs.base import TaskSplit, split_tasks
from envs.web.tasks import bare, check_names, task_names
from envs.web.tools import choose_tools
from envs.workers import Limits, ProcessWorlds


@dataclass
class WebConfig:
    """MiniWoB++ in Chromium, in worker processes. See ``conf/env/web.yaml`` for the fields.

    Raises ValueError when built with a value that cannot work.
    """

    pool: Any = "all"
    """Task names to draw the split from, or ``all``."""
    train: list[str] | None = None
    """Training tasks; None takes what ``eval`` leaves of the pool."""
    eval: list[str] | None = None
    """Evaluation tasks; None draws ``eval_share`` of the pool."""
    eval_share: float = 0.2
    split_seed: int = 0
    profile_tasks: bool = True
    """Whether ``all`` holds the tasks that want the user's own data."""
    workers: int = 2
    slots: int = 2
    call_timeout_s: float = 20.0
    start_timeout_s: float = 120.0
    chromium: str | None = None
    id_position: str = "after"
    tools: list[str] = field(default_factory=lambda: ["click", "fill", "select_option", "press"])
    plant_at: str = "end"
    plant_html: bool = False
    settle_ms: int = 600
    reuse_page: bool = True

    def __post_init__(self) -> None:
        for name, allowed in (("id_position", ("after", "before")), ("plant_at", ("start", "end"))):
            if (value := getattr(self, name)) not in allowed:
                raise ValueError(f"env.{name} must be one of {', '.join(allowed)}, got {value!r}")
        for name in ("workers", "slots"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"env.{name} must be at least 1, got {value}")
        for name in ("call_timeout_s", "start_timeout_s"):
            if not 0.0 < (value := getattr(self, name)) < math.inf:
                raise ValueError(f"env.{name} must be a positive number of seconds, got {value}")
        if self.settle_ms < 0:
            raise ValueError(f"env.settle_ms must not be negative, got {self.settle_ms}")
        try:
            choose_tools(self.tools)
        except ValueError as error:
            raise ValueError(f"env.tools: {error}") from None

    def tasks(self) -> TaskSplit:
        """The split of tasks. Raises `envs.base.UnknownTaskError`, and ValueError on an overlap."""
        everything = self.pool == "all"
        names = list(task_names(self.profile_tasks)) if everything else _names("pool", self.pool)
        train = None if self.train is None else _names("train", self.train)
        evaluation = None if self.eval is None else _names("eval", self.eval)
        check_names([*names, *(train or ()), *(evaluation or ())])
        if train is None and evaluation is None:
            return split_tasks(names, self.eval_share, self.split_seed)
        if train is None:
            train = [name for name in names if name not in (evaluation or ())]
        elif evaluation is None:
            evaluation = [name for name in names if name not in train]
        split = TaskSplit(tuple(train), tuple(evaluation or ()))
        shared = {bare(name) for name in split.train} & {bare(name) for name in split.eval}
        if shared:  # a page may not be trained on in one variant and judged in the other
            raise ValueError(f"pages in both env.train and env.eval: {', '.join(sorted(shared))}")
        return split

    def open(self) -> ProcessWorlds:
        """Starts the pool; its workers start when first needed. Raises `envs.base.WorldError`."""
        from envs.web.browser import find_chromium, find_pages
        from envs.web.env import WebOptions

        find_pages()
        options = WebOptions(
            chromium=find_chromium(self.chromium),
            id_position=self.id_position,
            tools=tuple(self.tools),
            plant_at=self.plant_at,
            plant_html=self.plant_html,
            settle_ms=self.settle_ms,
            reuse_page=self.reuse_page,
        )
        limits = Limits(call_s=self.call_timeout_s, first_call_s=self.start_timeout_s)
        return ProcessWorlds(partial(make, options), self.workers, self.slots, limits)


def make(options: Any) -> gymnasium.Env[Any, Any]:
    """One environment; called in the worker."""
    return gymnasium.make("arlas/Web-v0", options=options, disable_env_checker=True)


def _names(where: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"env.{where} must be a list of task names, got {value!r}")
    return [str(name) for name in value]
