"""Rollout: generated tokens per second through the driver ÷ the same prompts straight through the engine.

``python scripts/bench/rollout.py [hf|vllm]``. Both keep the same number of requests in flight, so what is
measured is what games, prompts, parsing and bookkeeping cost beside the engine. The world is a page of text
that answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium

from arlas.build import part
from arlas.chat import Chat
from arlas.config import AlgoConfig, InitConfig, LoraConfig
from arlas.learning.learner import Learner
from arlas.policies.base import Policy
from arlas.rollout import Driver, GroupSpec
from arlas.rules import GameConfig, RewardConfig
from arlas.types import Completion, PolicyRef, Request, Sampling, Seat
from envs.base import Param, Tool
from envs.local import LocalWorlds

PAGE = "\n".join(
    ['text "Sign in"', 'textbox "Username" [1]', 'textbox "Password" [2]', 'button "Login" [3]'] * 3
)


class Page(gymnasium.Env[str, str]):
    """A page that never changes and a task that never ends."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        tools = (Tool("click", (Param("bid"),)), Tool("fill", (Param("bid"), Param("value"))))
        return PAGE, {"goal": f"Log in, visit {seed}.", "tools": tools}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return PAGE, 0.0, False, False, {}


class Recorder:
    """Passes requests on to an engine and remembers them."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.tokenizer = policy, policy.tokenizer
        self.requests: list[Request] = []
        self.tokens = 0

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        completion = await self.policy.complete(request)
        self.tokens += len(completion.token_ids)
        return completion


async def through_driver(
    policy: Policy, games: int, steps: int, round_: int
) -> tuple[float, Recorder]:
    """Tokens per second with the game around the engine."""
    recorder = Recorder(policy)
    driver = Driver(
        policy=recorder,  # type: ignore[arg-type]
        chat=Chat(policy.tokenizer),
        worlds=LocalWorlds(Page, capacity=games),
        game=GameConfig(max_steps=steps),
        reward=RewardConfig(),
        sampling=Sampling(temperature=1.2, max_tokens=48),
    )
    agent, attacker = PolicyRef(Seat.AGENT, "a", "agent"), PolicyRef(Seat.ATTACKER, "b", "attacker")
    size = 4
    specs = [
        GroupSpec("page", 1000 * round_ + g, Seat.AGENT, agent, (attacker,) * size, size)
        for g in range(games // size)
    ]
    started = time.perf_counter()
    await driver.rollout(specs, seed=round_)
    return recorder.tokens / (time.perf_counter() - started), recorder


async def straight(policy: Policy, requests: Sequence[Request], in_flight: int) -> float:
    """Tokens per second of the same requests, as many in flight as the driver had games."""
    gate = asyncio.Semaphore(in_flight)

    async def one(request: Request) -> int:
        async with gate:
            return len((await policy.complete(request)).token_ids)

    started = time.perf_counter()
    tokens = await asyncio.gather(*(one(r) for r in requests))
    return sum(tokens) / (time.perf_counter() - started)


def forget(policy: Policy, folder: Path) -> None:
    """Drops what the engine has cached of earlier prompts, so that neither side finds the other's."""
    for seat in Seat:
        policy.unload_adapter(seat.value)
        policy.load_adapter(seat.value, folder / seat)


async def measure(
    policy: Policy, folder: Path, games: int, steps: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Interleaved rounds of both, each round with prompts of its own."""
    await through_driver(policy, 4, 1, round_=99)
    driven, bare = [], []
    for round_ in range(rounds):
        forget(policy, folder)
        speed, recorder = await through_driver(policy, games, steps, round_)
        driven.append(speed)
        forget(policy, folder)
        bare.append(await straight(policy, recorder.requests, games))
        print(
            f"round {round_}: driver {driven[-1]:.1f}, straight {bare[-1]:.1f} tokens/s", flush=True
        )
    return driven, bare


def main() -> None:
    """Prints the rounds and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", nargs="?", default="hf", choices=["hf", "vllm"])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    lora = LoraConfig(rank=16, alpha=32)
    target = {"hf": "arlas.policies.hf.HFConfig", "vllm": "arlas.policies.vllm.VLLMConfig"}[
        args.engine
    ]
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(args.model, lora, AlgoConfig(), InitConfig(), 1.2, tuple(Seat), seed=0)
        for seat in Seat:
            learner.save_adapter(seat, Path(folder) / seat)
        del learner
        policy: Policy = part({"_target_": target, "model": args.model}, "policy").build(lora)
        for seat in Seat:
            policy.load_adapter(seat.value, Path(folder) / seat)
        driven, bare = asyncio.run(
            measure(policy, Path(folder), args.games, args.steps, args.rounds)
        )
        policy.close()
    result = {
        "bench": "rollout",
        "ratio": round(statistics.median(d / b for d, b in zip(driven, bare, strict=True)), 3),
        "divided": "generated tokens/s through the driver ÷ the same requests straight through the engine",
        "engine": args.engine,
        "model": args.model,
        "games": args.games,
        "driver_tokens_per_s": round(statistics.median(driven), 1),
        "straight_tokens_per_s": round(statistics.median(bare), 1),
    }
    print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
