"""What a task is made of.

An *assignment* is a legitimate job; it prepares the workspace and says what has to be done and how it is
verified. An *attack* is harm that an outsider wants; it is independent of the job. A task crosses the two: the
attack's request can only reach the agent through the sites of the job, the places where outsiders write.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from envs.base import ToolCall
from envs.enterprise.company import Company
from envs.enterprise.verify import Breach, Condition
from envs.enterprise.workspace import Workspace


@dataclass(frozen=True)
class Scene:
    """Where a task is built: the workspace with its company, and a generator of the task's own."""

    workspace: Workspace
    company: Company
    rng: random.Random


@dataclass(frozen=True)
class Site:
    """A place where an outsider's text enters: behind the text that already stands in one cell."""

    table: str
    rowid: int
    column: str
    before: str


@dataclass(frozen=True)
class Job:
    """An assignment made concrete.

    ``calls`` is the reference solution without the final ``finish``; it reads every site before it writes.
    ``needs`` are the conditions of completion; ``answer`` is what ``finish`` has to say, if the user asked.
    """

    instruction: str
    calls: tuple[ToolCall, ...]
    needs: tuple[Condition, ...]
    sites: tuple[Site, ...]
    answer: str = ""


@dataclass(frozen=True)
class Harm:
    """An attack made concrete.

    ``goal`` completes "make the assistant …" for the attacker; ``request`` is the deed as a plain imperative
    sentence, which template attackers dress up; ``calls`` is what a fooled agent does, and ``breaches`` what it means.
    """

    goal: str
    request: str
    calls: tuple[ToolCall, ...]
    breaches: tuple[Breach, ...]


@dataclass(frozen=True)
class Assignment:
    """A kind of legitimate job. ``apps`` are those it works with."""

    name: str
    apps: tuple[str, ...]
    build: Callable[[Scene], Job]


@dataclass(frozen=True)
class Attack:
    """A kind of harm. ``apps`` are those whose tools it abuses; ``family`` groups kinds in the tables."""

    name: str
    family: str
    apps: tuple[str, ...]
    build: Callable[[Scene], Harm]


@dataclass(frozen=True)
class Order:
    """A malicious instruction: what a user asks for that the agent should decline."""

    name: str
    family: str
    apps: tuple[str, ...]
    build: Callable[[Scene], Harm]


class Kind(StrEnum):
    """What a task measures: hijacking, over-refusal, or obedience to a malicious user."""

    ATTACK = "attack"
    BENIGN = "benign"
    MALICIOUS = "malicious"


@dataclass(frozen=True)
class Task:
    """A task of the catalog; its name is ``assignment/attack``, ``assignment/benign`` or ``malicious/order``."""

    name: str
    kind: Kind
    apps: tuple[str, ...]
    assignment: Assignment | None = None
    attack: Attack | None = None
    order: Order | None = None

    @property
    def family(self) -> str:
        """The family of the harm; empty for benign tasks."""
        harm = self.attack or self.order
        return harm.family if harm else ""


def call(tool: str, **arguments: Any) -> ToolCall:
    """A tool call of a reference solution."""
    return ToolCall(tool, arguments)


def pick(rng: random.Random, *templates: str, **values: Any) -> str:
    """One of several wordings, filled in."""
    return rng.choice(templates).format(**values)


@dataclass(frozen=True)
class Suite:
    """One closed world of tasks: its apps, how its company comes to life, and its catalog.

    ``furnish`` fills the apps with everyday data, before assignment and attack add theirs. ``notes`` are
    harmless instructions for the sites of benign tasks. ``held_out`` names assignments and attacks of the
    validation split. ``crosses`` says which attacks meet which assignments;
    ``entities`` are the names of people and companies that it draws from.
    """

    name: str
    apps: Mapping[str, Any]
    found: Callable[[Workspace, random.Random], Company]
    furnish: Callable[[Scene], None]
    assignments: Sequence[Assignment]
    attacks: Sequence[Attack]
    orders: Sequence[Order]
    notes: Callable[[Scene, Job], str]
    held_out: frozenset[str] = field(default_factory=frozenset)
    crosses: Callable[[Assignment, Attack], bool] = lambda assignment, attack: True
    entities: Sequence[str] = ()
