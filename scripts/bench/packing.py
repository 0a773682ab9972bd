"""Packing: trained tokens per second of an imitation step with ``sft.packing`` ÷ without.

``python scripts/bench/packing.py [--model smollm2] [--repeats 5]``. One optimizer step on 12 turns with replies of 30 tokens:
``alike`` prompts of 150 to 250 tokens, ``mixed`` of 20 to 600 in micro-batches of 2048 places, ``mixed-wide`` the same in one
micro-batch, ``rules`` of 120 common tokens and 30 to 130 of their own, as collected demonstrations are. Both ways take turns
on the same data and must report the same loss.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import replace

import torch

from arlas.config import AlgoConfig, InitConfig, LoraConfig
from arlas.demonstrations import SFTConfig
from arlas.learning.learner import Learner
from arlas.learning.sft import _batches, _micros, train_sft
from arlas.types import Seat, Segment

TURNS, REPLY = 12, 30
# common tokens, own tokens from … to …, sft.micro_batch_tokens
CASES = {
    "alike": (0, 150, 250, 2048),
    "mixed": (0, 20, 600, 2048),
    "mixed-wide": (0, 20, 600, 16384),
    "rules": (120, 30, 130, 2048),
}


def turns(case: str) -> list[list[Segment]]:
    rng = random.Random(0)
    shared, low, high, _ = CASES[case]
    start = [rng.randrange(200) for _ in range(shared)]
    made = []
    for _ in range(TURNS):
        own = [rng.randrange(200) for _ in range(rng.randint(low, high) + REPLY)]
        ids = (*start, *own)
        mask = (False,) * (len(ids) - REPLY) + (True,) * REPLY
        made.append([Segment(ids, mask, (0.0,) * len(ids))])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", choices=CASES, help="only this case")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    learner = Learner(
        options.model,
        LoraConfig(rank=16, alpha=32),
        AlgoConfig(),
        InitConfig(),
        1.0,
        [Seat.AGENT],
        0,
        device="cpu",
    )
    results = {}
    for case in [options.case] if options.case else CASES:
        budget = CASES[case][3]
        cfg = SFTConfig(lr=1e-12, batch_size=0, beta=0.0, micro_batch_tokens=budget)
        episodes, ways = turns(case), [cfg, replace(cfg, packing=True)]
        places = [
            sum(b.input_ids_BT.numel() for b in _micros(_batches(episodes, 0, 0)[0], learner, way))
            for way in ways
        ]
        seconds: list[list[float]] = [[], []]
        losses = [0.0, 0.0]
        for repeat in range(options.repeats + 1):
            for i, way in enumerate(ways):
                start = time.perf_counter()
                losses[i] = train_sft(learner, Seat.AGENT, episodes, way)["loss"]
                if repeat:
                    seconds[i].append(time.perf_counter() - start)
        if abs(losses[0] - losses[1]) > 1e-3 * losses[0]:
            raise SystemExit(f"{case}: the two ways differ: losses {losses}")
        ratio = statistics.median(a / b for a, b in zip(*seconds, strict=True))
        results[case] = {
            "ratio": round(ratio, 3),
            "places": places,
            "tokens": sum(len(s.token_ids) for e in episodes for s in e),
            "seconds": [round(statistics.median(s), 2) for s in seconds],
        }
        print(case, json.dumps(results[case]), flush=True)
    line = {"bench": "packing", "ratio": next(iter(results.values()))["ratio"], "cases": results}
    print(json.dumps(line | {"divided": "trained tokens/s packed ÷ not", "model": options.model}))


if __name__ == "__main__":
    main()
