"""A whole population in one batch ÷ one attacker, and ÷ swapping adapters one after another.

Three ways to generate the same requests, interleaved in one process: spread over all adapters in one batch, all
with one adapter, and adapter by adapter, each running its share alone. Prints generated tokens per second, medians
over the repeats, and as its last line one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import peft
import torch

from arlas.config import LoraConfig
from arlas.policies import models
from arlas.policies.base import Policy
from arlas.types import PolicyRef, Request, Sampling, Seat


def write_adapters(folder: Path, model: str, lora: LoraConfig, count: int) -> list[Path]:
    """PEFT adapters with small random weights."""
    targets = lora.targets or "all-linear"
    shape = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, init_lora_weights=False
    )
    made = peft.get_peft_model(models.load_model(model), shape)
    paths = []
    for i in range(count):
        torch.manual_seed(i)
        for name, weight in made.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(weight, std=0.01)
        paths.append(folder / f"a{i}")
        made.save_pretrained(paths[-1])
    return paths


def open_engine(engine: str, model: str, lora: LoraConfig, adapters: int) -> Policy:
    """The engine, with room for all adapters in one step."""
    if engine == "hf":
        from arlas.policies.hf import HFConfig

        return HFConfig(model=model).build(lora)
    from arlas.policies.vllm import VLLMConfig

    return VLLMConfig(model=model, max_loras=adapters).build(lora)


def requests(args: argparse.Namespace, names: list[str], seed: int) -> Iterator[Request]:
    """Requests with prompts of their own, so that no prefix is ever found in a cache."""
    draw = random.Random(seed)
    for i in range(args.requests):
        prompt = tuple(draw.randrange(100, 5000) for _ in range(args.prompt))
        ref = PolicyRef(Seat.ATTACKER, "rl", names[i % len(names)])
        yield Request(ref, prompt, Sampling(1.0, max_tokens=args.new), draw.randrange(2**31))


async def generate(policy: Policy, batches: list[list[Request]]) -> float:
    """Generated tokens per second over batches that run one after another."""
    start, tokens = time.perf_counter(), 0
    for batch in batches:
        done = await asyncio.gather(*(policy.complete(r) for r in batch))
        tokens += sum(len(c.token_ids) for c in done)
    return tokens / (time.perf_counter() - start)


async def measure(policy: Policy, args: argparse.Namespace, names: list[str]) -> dict[str, float]:
    """Medians of the three ways, after a warm-up that is not counted."""
    speeds: dict[str, list[float]] = {"batch": [], "one": [], "swap": []}
    await generate(policy, [[r] for r in list(requests(args, names, -1))[: len(names)]])
    for repeat in range(args.repeats):
        for way in random.Random(repeat).sample(sorted(speeds), 3):
            seed = 3 * repeat + sorted(speeds).index(way)
            used = list(requests(args, names[:1] if way == "one" else names, seed))
            parts = [[r for r in used if r.policy.adapter == name] for name in names]
            speeds[way].append(await generate(policy, parts if way == "swap" else [used]))
            print(f"repeat {repeat} {way:5} {speeds[way][-1]:8.1f} tokens/s", flush=True)
    return {way: statistics.median(found) for way, found in speeds.items()}


def main() -> None:
    """Parses the options, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("vllm", "hf"), default="vllm")
    parser.add_argument("--model", default=models.SMOLLM2)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--targets", nargs="*", help="modules to adapt; default: all linear layers")
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--requests", type=int, default=32, help="in all, shared by the adapters")
    parser.add_argument("--prompt", type=int, default=24, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=32, help="tokens to generate")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    lora = LoraConfig(rank=args.rank, alpha=2 * args.rank, targets=args.targets or None)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_adapters(Path(folder), args.model, lora, args.adapters)
        policy = open_engine(args.engine, args.model, lora, args.adapters)
        try:
            for path in paths:
                policy.load_adapter(path.name, path)
            speed = asyncio.run(measure(policy, args, [path.name for path in paths]))
        finally:
            policy.close()
    result = {
        "bench": "population",
        "ratio": round(speed["batch"] / speed["one"], 3),
        "divided": f"tokens/s of {args.adapters} adapters in one batch ÷ tokens/s of one adapter",
        "ratio_swap": round(speed["batch"] / speed["swap"], 3),
        "divided_swap": f"tokens/s of {args.adapters} adapters in one batch ÷ one adapter after another",
        "tokens_per_second": {way: round(value, 1) for way, value in speed.items()},
        "threads": torch.get_num_threads(),
        **vars(args),
    }
    print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
