"""Learner: trained tokens per second ÷ TRL's GRPO step on the same model, adapter, and sampled tokens.

``python scripts/bench/learner.py [--model smollm2] [--repeats 5] [--threads 2]``. Eight episodes with prompts
of 250 tokens and replies of 40, once with one prompt for all (a group) and once with eight prompts. A step is:
reference log-probabilities, loss, backward pass, clipping, AdamW; no sampling on either side. Both contenders
start from one adapter, see one micro-batch, and must report the same gradient norm. Each lives in a process
of its own; they take turns, so that a busy machine slows both, and the ratio is the median of the pairs.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from arlas.config import AlgoConfig, InitConfig, LoraConfig
from arlas.types import Episode, Group, PolicyRef, Seat, Segment

PROMPT, REPLY, EPISODES, TEMPERATURE, LR = 250, 40, 8, 1.2, 1e-5
GOALS = {"shared": 1.5, "apart": 1.0}


def token_ids(case: str) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and replies, all drawn at random: only their number and what they share matters."""
    rng = random.Random(0)
    prompts = [[rng.randrange(200) for _ in range(PROMPT)] for _ in range(EPISODES)]
    replies = [[rng.randrange(200) for _ in range(REPLY)] for _ in range(EPISODES)]
    return ([prompts[0]] * EPISODES if case == "shared" else prompts), replies


def arlas_step(model: str, case: str, adapter: str) -> Callable[[], float]:
    from arlas.learning.learner import Learner

    # The sampled tokens come from no engine, so there is nothing to correct for.
    algo = AlgoConfig(lr=LR, batch_size=0, importance_cap=0.0)
    lora = LoraConfig(rank=16, alpha=32)
    start = InitConfig(agent=adapter)
    learner = Learner(model, lora, algo, start, TEMPERATURE, [Seat.AGENT], 0, device="cpu")
    episodes = []
    for i, (prompt, reply) in enumerate(zip(*token_ids(case), strict=True)):
        mask = (False,) * PROMPT + (True,) * REPLY
        segment = Segment((*prompt, *reply), mask, (0.0,) * (PROMPT + REPLY))
        ref = PolicyRef(Seat.AGENT, "sft")
        episodes.append(
            Episode("t", 0, i, Seat.AGENT, None, ref, segments={Seat.AGENT: (segment,)})
        )
        episodes[-1].rewards[Seat.AGENT] = float(i % 2)  # type: ignore[index]
    group = Group("t", 0, Seat.AGENT, "none", tuple(episodes))
    return lambda: learner.update(Seat.AGENT, [group], seed=0)["grad_norm"]


def trl_step(model: str, case: str, adapter: str) -> Callable[[], float]:
    from datasets import Dataset  # type: ignore[import-untyped]
    from peft import PeftModel
    from trl import GRPOConfig, GRPOTrainer

    from arlas.policies import models

    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=EPISODES,
        num_generations=EPISODES,
        max_completion_length=REPLY,
        temperature=TEMPERATURE,
        beta=0.05,
        epsilon=0.1,
        epsilon_high=0.3,
        loss_type="dapo",  # the mean over all action tokens
        learning_rate=LR,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
    )
    base = models.load_model(model)
    trainer: Any = GRPOTrainer(
        model=PeftModel.from_pretrained(base, adapter, is_trainable=True),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "x"}] * EPISODES),
        processing_class=models.load_tokenizer(model),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    weights = [p for p in trainer.model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=LR, weight_decay=0.0)
    prompt_ids, reply_ids = (torch.tensor(ids) for ids in token_ids(case))
    both = torch.cat([prompt_ids, reply_ids], dim=1)
    inputs = {
        "prompt_ids": prompt_ids,
        "prompt_mask": torch.ones_like(prompt_ids),
        "completion_ids": reply_ids,
        "completion_mask": torch.ones_like(reply_ids),
        "advantages": torch.tensor([-1.0, 1.0] * (EPISODES // 2)),
        "num_items_in_batch": torch.tensor(float(EPISODES * REPLY)),
    }

    def step() -> float:
        # As TRL takes the reference of an adapter that it goes on training.
        trainer.model.set_adapter("ref")
        with torch.no_grad():
            score = trainer._get_per_token_logps_and_entropies
            reference = score(trainer.model, both, torch.ones_like(both), REPLY, EPISODES)[0]
        trainer.model.set_adapter("default")
        loss = trainer.compute_loss(trainer.model, inputs | {"ref_per_token_logps": reference})
        trainer.accelerator.backward(loss)
        norm = float(torch.nn.utils.clip_grad_norm_(weights, 1.0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm

    if "ref" not in trainer.model.peft_config:
        raise SystemExit(
            f"this TRL keeps no reference adapter: {sorted(trainer.model.peft_config)}"
        )
    return step


def work(contender: str, model: str, case: str, adapter: str, threads: int) -> None:
    """A contender's process: one step for every line on its input, one JSON line for each."""
    torch.set_num_threads(threads)
    step = {"arlas": arlas_step, "trl": trl_step}[contender](model, case, adapter)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in sys.stdin:
        start, cpu = time.perf_counter(), time.process_time()
        norm = step()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        line = {"seconds": seconds, "cpu": cpu, "grad_norm": norm}
        print(json.dumps(line | {"peak_mb": peak / 1024, "step_mb": (peak - before) / 1024}))
        sys.stdout.flush()


def compare(case: str, options: argparse.Namespace, adapter: str) -> dict[str, Any]:
    """Lets both take turns; the first step of each is for warming up and for comparing gradients."""
    given = ["--model", options.model, "--threads", str(options.threads), "--adapter", adapter]
    pipe = subprocess.PIPE
    workers = {
        name: subprocess.Popen(
            [sys.executable, __file__, "--worker", name, "--case", case, *given],
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in ("arlas", "trl")
    }
    steps: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    for _ in range(options.repeats + 1):
        for name, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            while not (line := worker.stdout.readline()).startswith("{"):
                if not line:
                    raise SystemExit(f"{name} died; run it alone: --worker {name} --case {case}")
            steps[name].append(json.loads(line))
    for worker in workers.values():
        worker.communicate()
    norms = [steps[name][0]["grad_norm"] for name in ("arlas", "trl")]
    if abs(norms[0] - norms[1]) > 0.01 * norms[1]:
        raise SystemExit(f"{case}: the contenders do different things: gradient norms {norms}")
    timed = list(zip(steps["arlas"][1:], steps["trl"][1:], strict=True))
    result: dict[str, Any] = {
        "ratio": round(statistics.median(t["seconds"] / a["seconds"] for a, t in timed), 2),
        "cpu_ratio": round(statistics.median(t["cpu"] / a["cpu"] for a, t in timed), 2),
        "goal": GOALS[case],
        "grad_norms": [round(n, 5) for n in norms],
    }
    for name, found in steps.items():
        seconds = statistics.median(s["seconds"] for s in found[1:])
        result[f"{name}_tokens_per_second"] = round(EPISODES * REPLY / seconds, 1)
        result[f"{name}_peak_mb"] = round(found[-1]["peak_mb"])
        result[f"{name}_step_mb"] = round(found[-1]["step_mb"])
    return result


def make_adapter(model: str, folder: str) -> None:
    """A LoRA adapter of rank 16 on all linear layers whose B is not zero."""
    from arlas.learning.learner import Learner

    lora, algo = LoraConfig(rank=16, alpha=32), AlgoConfig()
    learner = Learner(model, lora, algo, InitConfig(), 1.0, [Seat.AGENT], 0, device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in learner.parameters(Seat.AGENT).items():
            if "lora_B" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 1e-3)
    learner.save_adapter(Seat.AGENT, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", choices=GOALS, help="only this case")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--adapter", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.model, options.case, options.adapter, options.threads)
        return
    with tempfile.TemporaryDirectory() as folder:
        adapter = str(Path(folder) / "adapter")
        make_adapter(options.model, adapter)
        results = {}
        for case in [options.case] if options.case else list(GOALS):
            results[case] = compare(case, options, adapter)
            print(case, json.dumps(results[case]))
    shared = results.get("shared") or results["apart"]
    division = "trained tokens/s of Learner.update ÷ trained tokens/s of TRL's GRPO step"
    line = {"bench": "learner", "ratio": shared["ratio"], "divided": division, "cases": results}
    print(json.dumps(line | {"model": options.model, "threads": options.threads}))


if __name__ == "__main__":
    main()
