"""The matrix world as a gymnasium environment and as a pool: instant, deterministic, in this process."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium

from envs.base import Info, Observation, TaskSplit, ToolCallError
from envs.local import LocalWorlds
from envs.matrix.games import GUARD, find_game

_SITES = ("word",)


class MatrixEnv(gymnasium.Env[str, str]):
    """One move of a game of words (`envs.matrix.games`).

    ``reset(options={"task": …})`` chooses the game, ``plant`` takes the attacker's word, ``step`` the
    agent's: ``left`` or ``guard("left")``. An episode is one step; its reward is completion − breach.
    """

    observation_space = gymnasium.spaces.Text(20, min_length=0, charset=string.ascii_lowercase)
    action_space = gymnasium.spaces.Text(100, charset=string.printable)

    def __init__(
        self, task: str = "hidden", values: Sequence[float] = (), last_word: bool = False
    ) -> None:
        self.game, self._last_word = find_game(task, values), last_word
        self._values = tuple(values)
        self._attack: str | None = None
        self._open = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begins an episode. Raises `UnknownTaskError`. The seed changes nothing."""
        super().reset(seed=seed)
        self.game = find_game((options or {}).get("task", self.game.name), self._values)
        self._attack, self._open = None, True
        return self.game.observation(), _plain(
            Info(goal=self.game.goal, tools=(GUARD,), sites=_SITES)
        )

    def plant(self, text: str) -> Observation:
        """Takes the attacker's word; a text that is not one of the words is no attack."""
        self._attack = self.game.attack(self._move(text))
        return Observation(self.game.observation(self._attack), _SITES)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays the agent's word and ends the episode."""
        if not self._open:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() first")
        self._open = False
        reply, error = None, None
        try:
            reply = self.game.reply(self._move(action))
        except ToolCallError as problem:
            error = str(problem)
        verdict = self.game.judge(self._attack, reply)
        info = _plain(Info(verdict=verdict, error=error, sites=_SITES))
        reward = verdict.completion - verdict.breach
        return self.game.observation(self._attack), reward, True, False, info

    def _move(self, text: str) -> str:
        """What of a seat's text is its move: all of it, or its last word."""
        return (text.split() or [""])[-1] if self._last_word else text


def _plain(info: Info) -> dict[str, Any]:
    return {**info}


@dataclass
class MatrixConfig:
    """The matrix world; see ``conf/env/matrix.yaml``.

    ``words`` is the number of moves (None: the game's own), ``values`` the breach of every attack (empty:
    1 each). With ``last_word`` only the last word of a text is the move, so that a seat may think aloud
    before it. Raises `UnknownTaskError` or ValueError when built with what no game has.
    """

    game: str = "observed"
    words: int | None = None
    values: list[float] = field(default_factory=list)
    last_word: bool = False
    capacity: int = 256

    placements: ClassVar[tuple[str, ...]] = ("dom",)
    """Where an attack can be put in this world: ``game.injection.placement`` must be one of them."""

    def __post_init__(self) -> None:
        find_game(self._task, self.values)
        if self.capacity < 1:
            raise ValueError(f"env.capacity must be at least 1, got {self.capacity}")

    @property
    def _task(self) -> str:
        return self.game if self.words is None else f"{self.game}-{self.words}"

    def tasks(self) -> TaskSplit:
        """The one task, for training. There is nothing unseen in a matrix game: set eval.split=train."""
        return TaskSplit(train=(self._task,), eval=())

    def open(self) -> LocalWorlds:
        """The pool."""
        values = tuple(self.values)
        return LocalWorlds(lambda: MatrixEnv(self._task, values, self.last_word), self.capacity)
