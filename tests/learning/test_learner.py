"""The learner: what it learns, what it writes, what it refuses, and several processes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from learning_cases import (
    TINY,
    CaughtGradients,
    episode,
    group,
    groups_sharing_prompts,
    make_learner,
    naive_logprobs,
    segment,
    stir,
    tokens,
)
from peft import PeftModel
from safetensors.torch import load_file

from arlas.config import AlgoConfig, InitConfig, LoraConfig
from arlas.learning.learner import Learner
from arlas.policies import models
from arlas.types import AdapterError, ArlasError, ConfigurationError, Seat, TrainingError

HERE = Path(__file__).parent


@pytest.mark.parametrize("model", TINY)
def test_rewarded_replies_become_likelier(model: str) -> None:
    """After updates on one group, good replies have gained and bad ones lost."""
    learner = make_learner(model, lr=3e-3, beta=0.0)
    rng = random.Random(0)
    prompt = tokens(rng, 30)
    replies = [segment([(prompt, False), (tokens(rng, 6), True)]) for _ in range(4)]
    made = group([episode(i, [s], float(i % 2)) for i, s in enumerate(replies)])
    before = [sum(learner.logprobs(Seat.AGENT, s)) for s in replies]
    for i in range(3):
        metrics = learner.update(Seat.AGENT, [made], seed=i)
    gained = [
        sum(learner.logprobs(Seat.AGENT, s)) - b for s, b in zip(replies, before, strict=True)
    ]
    assert min(gained[1], gained[3]) > 0.0 > max(gained[0], gained[2])
    assert (metrics["tokens"], metrics["episodes"], metrics["groups"]) == (24, 4, 1)
    assert metrics["grad_norm"] > 0.0


def test_ratios_start_at_one_and_move_within_an_update() -> None:
    """Old log-probabilities are those before the first step: later steps see other ratios."""
    one = make_learner(batch_size=0)
    metrics = one.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
    assert metrics["ratio_mean"] == metrics["ratio_max"] == 1.0
    many = make_learner(batch_size=0, epochs=3)
    metrics = many.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
    assert metrics["steps"] == 3
    assert metrics["ratio_max"] > 1.01
    assert metrics["clip_share"] > 0.0
    first = make_learner(batch_size=0, epochs=2, lr=1e-12)
    metrics = first.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("model", TINY)
def test_saved_adapters_are_plain_peft(model: str, tmp_path: Path) -> None:
    """PEFT loads the folder over the same base and gives the learner's log-probabilities; no machine path."""
    learner = make_learner(model)
    stir(learner)
    learner.save_adapter(Seat.AGENT, tmp_path / "agent")
    models.check_adapter(tmp_path / "agent", model)
    config = json.loads((tmp_path / "agent" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == model
    assert config["target_modules"] == sorted(
        "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj".split()
    )
    assert not any(isinstance(v, str) and v.startswith("/") for v in config.values())
    assert all(t.dtype == torch.float32 for t in _weights(tmp_path / "agent").values())
    plain = PeftModel.from_pretrained(models.load_model(model), str(tmp_path / "agent"))
    one = groups_sharing_prompts()[0].episodes[0].segments[Seat.AGENT][0]
    ids = torch.tensor([one.token_ids])
    with torch.no_grad():
        all_T = (plain(input_ids=ids).logits[0] / 1.2).log_softmax(-1)
    expected = [
        float(all_T[i - 1, one.token_ids[i]])
        for i, sampled in enumerate(one.action_mask)
        if sampled
    ]
    assert learner.logprobs(Seat.AGENT, one) == pytest.approx(expected, abs=1e-5)
    again = make_learner(model, init=InitConfig(agent=str(tmp_path / "agent")))
    assert again.logprobs(Seat.AGENT, one) == learner.logprobs(Seat.AGENT, one)


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return found


def test_fresh_adapters_follow_from_the_seed_and_change_nothing_yet() -> None:
    """B = 0: the base's log-probabilities; same seed same A, other seeds and seats other A; RNG untouched."""
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one, same, other = make_learner(seed=5), make_learner(seed=5), make_learner(seed=6)
    assert torch.equal(torch.rand(1), expected)
    text = groups_sharing_prompts()[0].episodes[0].segments[Seat.AGENT][0]
    with torch.no_grad(), one.model.disable_adapter():
        base = naive_logprobs(one, text)
    assert one.logprobs(Seat.AGENT, text) == pytest.approx(base.tolist(), abs=1e-5)

    def a(learner: Learner, seat: Seat) -> torch.Tensor:
        return torch.cat(
            [p.flatten() for n, p in learner.parameters(seat).items() if "lora_A" in n]
        )

    assert torch.equal(a(one, Seat.AGENT), a(same, Seat.AGENT))
    assert not torch.equal(a(one, Seat.AGENT), a(other, Seat.AGENT))
    assert not torch.equal(a(one, Seat.AGENT), a(one, Seat.ATTACKER))


def test_gradient_checkpointing_changes_no_gradient() -> None:
    """Recomputed activations are the same activations."""
    results = []
    for recompute in (False, True):
        learner = make_learner("tiny-gemma3", gradient_checkpointing=recompute)
        stir(learner)
        caught = CaughtGradients(learner, Seat.AGENT)
        learner.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
        results.append(caught.steps[0])
    assert learner.base.is_gradient_checkpointing
    for name, gradient in results[0].items():
        torch.testing.assert_close(gradient, results[1][name], atol=1e-7, rtol=1e-5)


def test_two_processes_learn_what_one_does(tmp_path: Path) -> None:
    """Two processes split the micro-batches and end with the same adapter."""
    paths = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc_per_node",
                "2",
            ),
            *(str(HERE / "learner_process.py"), str(tmp_path / "two")),
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "processes=2" in done.stdout
    learner = make_learner(micro_batch_tokens=60, batch_size=4)
    learner.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
    learner.save_adapter(Seat.AGENT, tmp_path / "one")
    one, two = _weights(tmp_path / "one"), _weights(tmp_path / "two")
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=2e-4, rtol=1e-3)


def test_adapters_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Another base model, another rank, other modules: each with a message that says what to do."""
    learner = make_learner()
    learner.save_adapter(Seat.AGENT, tmp_path / "agent")
    init = InitConfig(agent=str(tmp_path / "agent"))
    with pytest.raises(AdapterError, match="made for"):
        make_learner("tiny-qwen3", init=init)

    def start(lora: LoraConfig) -> Learner:
        return Learner("tiny-llama", lora, AlgoConfig(), init, 1.0, [Seat.AGENT], 0, device="cpu")

    with pytest.raises(AdapterError, match=r"set lora\.rank"):
        start(LoraConfig(rank=8, alpha=8))
    with pytest.raises(AdapterError, match=r"lora\.targets"):
        start(LoraConfig(rank=4, alpha=8, targets=["q_proj"]))
    with pytest.raises(AdapterError, match="not a PEFT adapter"):
        make_learner(init=InitConfig(agent=str(tmp_path / "nowhere")))


def test_a_trained_output_head_is_refused() -> None:
    """The chunked head has no gradient of its own; silently training nothing would be worse."""
    lora = LoraConfig(rank=4, alpha=8, targets=["q_proj", "lm_head"])
    with pytest.raises(ConfigurationError, match=r"lora\.targets"):
        Learner("tiny-llama", lora, AlgoConfig(), InitConfig(), 1.0, [Seat.AGENT], 0, "cpu")


def test_a_gradient_that_is_no_number_changes_nothing() -> None:
    """The update raises an error that entry points know, and the adapter is as it was."""
    learner = make_learner()
    stir(learner)
    before = {n: p.clone() for n, p in learner.parameters(Seat.AGENT).items()}
    bad = segment([([1, 2, 3], False), ([4], True)])
    bad = type(bad)(bad.token_ids, bad.action_mask, (0.0, 0.0, 0.0, float("nan")))
    made = group([episode(0, [bad], 0.0), episode(1, [bad], 1.0)])
    with pytest.raises(TrainingError, match="not finite"):
        learner.update(Seat.AGENT, [made], seed=0)
    assert issubclass(TrainingError, ArlasError)
    assert all(torch.equal(before[n], p) for n, p in learner.parameters(Seat.AGENT).items())


def test_a_missing_gpu_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """device=cuda without a GPU dies before the model is loaded."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match="device=cpu"):
        Learner("nowhere", LoraConfig(), AlgoConfig(), InitConfig(), 1.0, [Seat.AGENT], 0, "cuda")


def test_bf16_stays_near_float32() -> None:
    """Mixed precision through accelerate: float32 adapters, gradients in the same direction, finite metrics."""
    found = []
    for precision in ("no", "bf16"):
        AcceleratorState._reset_state()  # one precision a process, else
        learner = make_learner(mixed_precision=precision)
        stir(learner)
        assert {p.dtype for p in learner.parameters(Seat.AGENT).values()} == {torch.float32}
        caught = CaughtGradients(learner, Seat.AGENT)
        metrics = learner.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
        found.append((torch.cat([g.flatten() for g in caught.steps[0].values()]), metrics))
    AcceleratorState._reset_state()
    exact, mixed = found[0][0], found[1][0]
    assert not torch.equal(exact, mixed)
    assert torch.cosine_similarity(exact, mixed, dim=0) > 0.99
    assert found[1][1]["loss"] == pytest.approx(found[0][1]["loss"], abs=0.05)
