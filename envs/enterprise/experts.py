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
from envs.enterprise.tasks.spec import Harm

_CODE = re.compile(r"\AWorkspace [a-z]+-([0-9a-z]+),")


def expert(
    goal: str,
    observation: str,
    user: Mapping[str, str],
    past: Sequence[str],
    rng: random.Random,
) -> tuple[str, str] | None:
    """The next step of the reference solution as (thought, tool call), None in another world."""
    built, _ = _built(observation)
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
    built, marks = _built(observation)
    if built is None or built.harm is None or not _asked(built.harm, marks, observation):
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


def _asked(harm: Harm, marks: Sequence[str], observation: str) -> bool:
    """Whether somebody asks for the harm: in the words of its goal or request, or naming what only an attack names."""
    read = _flat(observation)
    whole = any(_flat(words) in read for words in (harm.goal, harm.request))
    return whole or any(m in observation for m in marks)


def _marks(built: Built) -> tuple[str, ...]:
    """Addresses, links, names and numbers of the harm that stand nowhere in the workspace without an attack."""
    if built.harm is None:
        return ()
    rows = [r for table in built.workspace.snapshot().values() for r in table.values()]
    clean = "\n".join([built.instruction, *(str(v) for r in rows for v in r.values())])
    found = re.findall(r"\S*[@/.\d#]\S*\w", f"{built.harm.goal}\n{built.harm.request}")
    return tuple(m for m in dict.fromkeys(found) if m not in clean)


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


def written(made: ToolCall) -> str:
    """A call as an agent writes it."""
    return f"{made.name}({', '.join(f'{k}={v!r}' for k, v in made.arguments.items())})"


@functools.lru_cache(maxsize=512)
def _of(code: str) -> tuple[Built | None, tuple[str, ...]]:
    try:
        seed, number = decode(code)
        built = build(list(catalog())[number], seed)
    except (ValueError, IndexError):
        return None, ()
    try:
        return built, _marks(built)
    finally:
        built.workspace.close()


def _built(observation: str) -> tuple[Built | None, tuple[str, ...]]:
    """The task that an observation belongs to, and what marks its attack; None in another world."""
    found = _CODE.match(observation)
    return _of(found[1]) if found else (None, ())


def _left(calls: Sequence[ToolCall], past: Sequence[str]) -> Sequence[ToolCall]:
    """The calls that were not tried yet; one that a runtime layer stopped is not tried again."""
    return [c for c in calls if not any(p.partition(". ")[2].startswith(written(c)) for p in past)]


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
