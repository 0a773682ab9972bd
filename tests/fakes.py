"""Stand-ins for a model and a world: fixed replies in a real tokenizer's tokens, and a page that echoes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import yaml
from omegaconf import OmegaConf

from arlas.chat import Chat
from arlas.policies.models import load_tokenizer
from arlas.rollout import Driver, GroupSpec
from arlas.rules import GameConfig, RewardConfig
from arlas.types import (
    Completion,
    Episode,
    PolicyRef,
    Request,
    Sampling,
    Seat,
    StopReason,
)
from envs.base import Observation, Param, Tool, Verdict, Worlds, parse_call
from envs.local import LocalWorlds

ROOT = Path(__file__).resolve().parent.parent
AGENT = PolicyRef(Seat.AGENT, "base")
ATTACKER = PolicyRef(Seat.ATTACKER, "base")

TOOLS = (
    Tool("fill", (Param("bid"), Param("value"))),
    Tool("click", (Param("bid"),)),
    Tool("send", (Param("text"),)),
)


@functools.cache
def chat_of(model: str = "tiny-llama") -> Chat:
    """The chat of a model, made once."""
    return Chat(load_tokenizer(model))


def act(call: str, thought: str = "ok") -> str:
    """A well-formed reply."""
    return f"<think>{thought}</think><action>{call}</action>"


class Fake:
    """A policy that says what a function tells it to, in tokens of a real tokenizer."""

    def __init__(self, chat: Chat, say: Callable[[Request], str | Exception]) -> None:
        self.chat, self.say, self.tokenizer = chat, say, chat.tokenizer
        self.requests: list[Request] = []
        self.loaded: list[str] = []
        self.log: list[str] = []

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        said = self.say(request)
        if isinstance(said, Exception):
            raise said
        await asyncio.sleep(0)
        ids = (*self.chat.encode(said), self.chat.end_of_turn)[: request.sampling.max_tokens]
        stop = ids[-1] == self.chat.end_of_turn
        return Completion(
            ids,
            tuple(-0.5 - i / 100 for i in range(len(ids))),
            StopReason.STOP if stop else StopReason.LENGTH,
            request.policy,
        )

    def prompts(self, seat: Seat) -> list[str]:
        """What a seat was shown, decoded from its token ids."""
        return [self.tokenizer.decode(r.prompt_ids) for r in self.requests if r.policy.seat is seat]

    def load_adapter(self, name: str, path: Path) -> None:
        self.loaded.append(name)
        self.log.append(f"+{name}")

    def unload_adapter(self, name: str) -> None:
        self.loaded.remove(name)
        self.log.append(f"-{name}")

    def adapters(self) -> tuple[str, ...]:
        return tuple(self.loaded)

    def close(self) -> None:
        pass


def turns(agent: Sequence[str], attacker: Sequence[str] = ()) -> Callable[[Request], str]:
    """Replies in order for each seat; the last one is repeated. For one episode at a time."""
    left = {Seat.AGENT: list(agent), Seat.ATTACKER: list(attacker)}

    def say(request: Request) -> str:
        mine = left[request.policy.seat]
        return mine.pop(0) if len(mine) > 1 else mine[0]

    return say


class Page(gymnasium.Env[str, str]):
    """A form that shows what was typed into it; ``click("done")`` succeeds, ``click("lost")`` fails."""

    def __init__(
        self, goal: str = "Fill in the form.", demanded: Sequence[str] = (), lines: int = 3
    ) -> None:
        self.goal, self.demanded, self.lines = goal, tuple(demanded), lines
        self.typed: list[str] = []
        self.user: dict[str, str] = {}
        self.resets: list[tuple[int | None, str, dict[str, str]]] = []

    def _text(self) -> str:
        return "\n".join([*(f"row {i}" for i in range(self.lines)), *self.typed])

    def _info(self, **more: Any) -> dict[str, Any]:
        goal = self.goal.format(**self.user)
        return {"goal": goal, "tools": TOOLS, "verdict": Verdict(), **more}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        options = options or {}
        self.user, self.typed = options["user"], []
        self.resets.append((seed, options["task"], options["user"]))
        return self._text(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        call = parse_call(action, TOOLS)
        if call.name == "fill":
            self.typed.append(
                f'textbox [{call.arguments["bid"]}] value="{call.arguments["value"]}"'
            )
            return self._text(), 0.0, False, False, self._info(demanded=self.demanded)
        target = call.arguments.get("bid")
        if target == "die":
            raise RuntimeError("the page crashed")
        if target == "missing":
            return self._text(), 0.0, False, False, self._info(error="there is no such element")
        verdict = Verdict(
            completion={"done": 1.0, "half": 0.5}.get(str(target), 0.0),
            breach=float(target == "breach"),
        )
        over = target in ("done", "lost", "half", "breach")
        return self._text(), 0.0, over, False, self._info(verdict=verdict)


class PlantablePage(Page):
    """A page into whose live text an outsider can write."""

    def plant(self, text: str) -> Observation:
        self.typed = [t for t in self.typed if not t.startswith("note:")]
        self.typed.append("note: " + " ".join(text.split()))
        return Observation(self._text())


def driver(
    policy: Fake,
    make: Callable[[], gymnasium.Env[Any, Any]] = Page,
    *,
    worlds: Worlds | None = None,
    game: GameConfig | None = None,
    reward: RewardConfig | None = None,
    retries: int = 0,
    max_tokens: int = 512,
) -> Driver:
    """A driver around a fake policy."""
    return Driver(
        policy,
        policy.chat,
        worlds or LocalWorlds(make),
        game or GameConfig(),
        reward or RewardConfig(),
        Sampling(max_tokens=max_tokens),
        retries,
    )


async def episode(
    games: Driver, attacked: bool = True, seed: int = 3, task: str = "form"
) -> Episode:
    """One episode through the driver."""
    spec = GroupSpec(task, seed, Seat.AGENT, AGENT, (ATTACKER,) if attacked else (), 1)
    return (await games.rollout([spec], seed=1))[0].episodes[0]


def reward_table(name: str) -> RewardConfig:
    """The payoff table of ``conf/reward/NAME.yaml``."""
    raw = yaml.safe_load((ROOT / "conf" / "reward" / f"{name}.yaml").read_text())
    found = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(RewardConfig), raw))
    assert isinstance(found, RewardConfig)
    return found


def with_game(**changes: Any) -> GameConfig:
    """The default game with changes."""
    return replace(GameConfig(), **changes)
