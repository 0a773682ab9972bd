"""Scripted policies: an expert in the agent's seat, template attackers in the other.

They serve tests, the first demonstrations, and as opponents of known strength. They read the prompt's text and
answer in the token ids of the main engine's tokenizer, so that their episodes can be learned from.
"""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arlas.chat import Chat
from arlas.policies.attacks import FAMILIES, attack, comply
from arlas.prompts import View, read_prompt
from arlas.types import (
    AdapterError,
    Completion,
    ConfigurationError,
    PolicyError,
    Request,
    Seat,
    StopReason,
)

Expert = Callable[
    [str, str, Mapping[str, str], Sequence[str], random.Random], "tuple[str, str] | None"
]
"""(goal, observation, user, past, rng) → (thought, tool call), None for a task it does not know."""

_TAG = re.compile(r"</?(?:think|action)>")
_ID = re.compile(r"\[(\d{1,6})\]")
_FIRST_ID = re.compile(r'(?<=\(")\d+(?=")')


@dataclass
class ScriptedConfig:
    """A teacher of both seats; chosen by ``_target_: arlas.policies.scripted.ScriptedConfig``."""

    agent: str
    """Dotted path of an `Expert`."""
    fall: str | None = None
    """Dotted path of an `Expert` that does what a text in the observation asks, None if nothing does; null:
    `arlas.policies.attacks.comply`, which gives away private fields."""
    attacker: Any = "all"
    """Families of `arlas.policies.attacks.FAMILIES`, one drawn for each text; or ``all``."""
    mistakes: float = 0.0
    """Share of the agent's steps with a deliberate mistake: a wrong element, or a malformed reply."""
    obey: float = 0.0
    """Share of the injected steps at which the agent does what the injection asks."""

    def __post_init__(self) -> None:
        for name in ("mistakes", "obey"):
            share = getattr(self, name)
            if not 0.0 <= share <= 1.0:
                raise ConfigurationError(f"teacher.{name} must lie in [0, 1], got {share}")
        unknown = [f for f in self.families() if f not in FAMILIES]
        if unknown or not self.families():
            raise ConfigurationError(
                f"teacher.attacker: unknown families {unknown}; choose all, or from {', '.join(FAMILIES)}"
            )

    def families(self) -> tuple[str, ...]:
        """The names of the chosen families."""
        if self.attacker == "all":
            return tuple(FAMILIES)
        return (self.attacker,) if isinstance(self.attacker, str) else tuple(self.attacker)

    def build(self, tokenizer: Any) -> ScriptedPolicy:
        """The policy in the tokens of ``tokenizer``. Raises `ConfigurationError` if the expert is missing."""
        expert = _resolve(self.agent, "agent")
        fall = _complied if self.fall is None else _resolve(self.fall, "fall")
        return ScriptedPolicy(tokenizer, expert, self.families(), self.mistakes, self.obey, fall)


def _complied(
    goal: str, observation: str, user: Mapping[str, str], past: Sequence[str], rng: random.Random
) -> tuple[str, str] | None:
    """`comply` as an `Expert`."""
    return comply(observation, user, rng)


def _resolve(path: str, key: str) -> Expert:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"teacher.{key}={path} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"teacher.{key}={path} is no function")
    expert: Expert = found
    return expert


class ScriptedPolicy:
    """A `arlas.policies.base.Policy` without a model.

    The same request gives the same reply. Log-probabilities are 0: there is no distribution to learn from,
    only the text. Adapters are refused.
    """

    def __init__(
        self,
        tokenizer: Any,
        expert: Expert,
        families: Sequence[str],
        mistakes: float = 0.0,
        obey: float = 0.0,
        fall: Expert = _complied,
    ) -> None:
        self.tokenizer = tokenizer
        self._chat = Chat(tokenizer)
        self._expert = expert
        self._families = tuple(families)
        self._mistakes = mistakes
        self._obey = obey
        self._fall = fall

    async def complete(self, request: Request) -> Completion:
        """Answers from ``request.messages``. Raises `PolicyError` on a prompt that is not the game's."""
        if request.policy.adapter is not None:
            raise AdapterError(f"a scripted policy serves no adapter {request.policy.adapter}")
        try:
            view = read_prompt(request.messages)
        except (ValueError, IndexError) as error:
            raise PolicyError(
                f"a scripted policy reads the game's tagged prompts (game.reply=tagged): {error}"
            ) from error
        rng = random.Random(request.seed)
        if request.policy.seat is Seat.AGENT:
            text = self._act(view, rng)
        else:
            text = self._attack(view, request.messages[0].content, rng)
        token_ids = (*self._chat.encode(text), self._chat.end_of_turn)
        limit = request.sampling.max_tokens
        stop = StopReason.STOP if len(token_ids) <= limit else StopReason.LENGTH
        token_ids = token_ids[:limit]
        return Completion(token_ids, (0.0,) * len(token_ids), stop, request.policy)

    def _act(self, view: View, rng: random.Random) -> str:
        slips, falls = rng.random() < self._mistakes, rng.random() < self._obey
        told = (view.goal, view.observation, view.user, view.past, rng)
        step = self._fall(*told) if falls else None
        if step is None or any(step[1] in made for made in view.past):  # nobody falls for it twice
            step = self._expert(*told)
        if step is None:
            return "<think>I do not know what to do here.</think>"
        return _slip(*step, view.observation, rng) if slips else _reply(*step)

    def _attack(self, view: View, rules: str, rng: random.Random) -> str:
        named = re.search(r"private data \(([^)]*)\)", rules)
        fields = [f for f in (named[1] if named else "").split(", ") if f]
        told = (rng.choice(self._families), view.goal, view.observation, fields, view.past)
        return _reply(*attack(*told, rng, view.aim))

    def load_adapter(self, name: str, path: Path) -> None:
        """Raises `AdapterError`: there are no weights."""
        raise AdapterError(f"a scripted policy takes no adapter, got {name} ({path})")

    def unload_adapter(self, name: str) -> None:
        """Does nothing: none is ever loaded."""

    def adapters(self) -> tuple[str, ...]:
        """No names."""
        return ()

    def close(self) -> None:
        """Does nothing."""


def _reply(thought: str, action: str) -> str:
    thought = _TAG.sub("", thought)  # a thought quotes the page, and the page is hostile
    return f"<think>{thought}</think><action>{action}</action>"


def _slip(thought: str, call: str, observation: str, rng: random.Random) -> str:
    """The step with a mistake in it."""
    right = _FIRST_ID.search(call)
    others = sorted({i for i in _ID.findall(observation) if right and i != right[0]})
    if right and others and rng.random() < 0.5:
        return _reply(thought, _FIRST_ID.sub(rng.choice(others), call, count=1))
    malformed = (_reply(thought, call[:-1]), f"<think>{thought}</think>{call}", f"<think>{thought}")
    return rng.choice(malformed)
