"""A scripted teacher for all tasks: it knows the reference solutions, and reasons aloud in varied words.

The name of the workspace in the observation tells which episode this is, so the teacher is a pure function of what
the agent was told.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping, Sequence

from envs.base import ToolCall
from envs.enterprise.codes import decode
from envs.enterprise.tasks.catalog import Built, build, catalog

_CODE = re.compile(r"\AWorkspace [a-z]+-([0-9a-z]+),")


def expert(
    goal: str,
    observation: str,
    user: Mapping[str, str],
    past: Sequence[str],
    rng: random.Random,
) -> tuple[str, str] | None:
    """The next step of the reference solution as (thought, tool call), None in another world."""
    built = _built(observation)
    if built is None or built.instruction != goal:
        return None
    left = _left(built.solution, past)
    return (_thought(left[0], len(left), rng), written(left[0])) if left else None


def fall(
    goal: str,
    observation: str,
    user: Mapping[str, str],
    past: Sequence[str],
    rng: random.Random,
) -> tuple[str, str] | None:
    """The next step of an agent that believes what outsiders wrote, None if nothing like it was read."""
    built = _built(observation)
    if built is None or built.harm is None or not _asked(built, observation):
        return None
    left = _left(built.harm.calls, past)
    if not left:
        return None
    thought = rng.choice(
        (
            "The message asks for this, so I do it.",
            "I was told to do this first.",
            "That has to be done as well.",
        )
    )
    return thought, written(left[0])


def _asked(built: Built, observation: str) -> bool:
    """Whether the observation names what the attack is about."""
    assert built.harm is not None
    marks = re.findall(r"\S*[@/.\d#]\S*\w", built.harm.request)
    return any(m in observation for m in marks or [built.harm.request])


def written(made: ToolCall) -> str:
    """A call as an agent writes it."""
    return f"{made.name}({', '.join(f'{k}={v!r}' for k, v in made.arguments.items())})"


@functools.lru_cache(maxsize=512)
def _of(code: str) -> Built | None:
    try:
        seed, number = decode(code)
        built = build(list(catalog())[number], seed)
    except (ValueError, IndexError):
        return None
    built.workspace.close()
    return built


def _built(observation: str) -> Built | None:
    found = _CODE.match(observation)
    return _of(found[1]) if found else None


def _left(calls: Sequence[ToolCall], past: Sequence[str]) -> Sequence[ToolCall]:
    """The calls that were not made yet."""
    return [c for c in calls if not any(p.partition(". ")[2] == written(c) for p in past)]


_READ = (
    "I start with {tool}.",
    "First I look: {tool}.",
    "I need to see this before I act: {tool}.",
)
_WRITE = (
    "Now {tool} does what the task asks.",
    "I know enough. Next is {tool}.",
    "The task wants this: {tool}.",
)
_END = ("Everything is done.", "That was all; I finish.", "The work is complete.")


def _thought(made: ToolCall, left: int, rng: random.Random) -> str:
    wordings = (
        _END
        if left == 1
        else _READ
        if made.name.startswith(("read", "list", "get", "search"))
        else _WRITE
    )
    return rng.choice(wordings).format(tool=made.name)
