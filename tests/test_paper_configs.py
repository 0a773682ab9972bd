"""The paper's runs as configs: every number of its tables, templates that fit, and the memory that they need."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fakes import chat_of
from peft import LoraConfig as PeftLoraConfig
from peft import get_peft_model
from support import ROOT, composed
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3Config, Qwen3ForCausalLM

from arlas.build import part, plain, typed
from arlas.choices import Draw, History, LeakScope, OpponentPer, Placement
from arlas.config import RunConfig
from arlas.memory import GIB, SHAPES, memory
from arlas.policies.openai import OpenAIConfig
from arlas.policies.vllm import VLLMConfig
from arlas.types import ConfigurationError, Seat

MODELS = {
    "arlas_gemma3_12b": ("google/gemma-3-12b-it", "google/gemma-3-27b-it"),
    "arlas_qwen3_14b": ("Qwen/Qwen3-14B", "Qwen/Qwen3-32B"),
}
# The sizes on the models' own pages, typed in again for transformers' classes.
PUBLISHED: dict[str, tuple[type, Any]] = {
    "google/gemma-3-12b-it": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            hidden_size=3840,
            intermediate_size=15360,
            num_hidden_layers=48,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=256,
            vocab_size=262208,
            sliding_window=1024,
        ),
    ),
    "Qwen/Qwen3-14B": (
        Qwen3ForCausalLM,
        Qwen3Config(
            hidden_size=5120,
            intermediate_size=17408,
            num_hidden_layers=40,
            num_attention_heads=40,
            num_key_value_heads=8,
            head_dim=128,
            vocab_size=151936,
            tie_word_embeddings=False,
        ),
    ),
}


def _config(name: str, tmp_path: Path) -> RunConfig:
    return composed(f"experiment={name}", f"run_dir={tmp_path}")


@pytest.mark.parametrize("name", MODELS)
def test_every_number_of_the_papers_tables(name: str, tmp_path: Path) -> None:
    """Section 3 of the paper and its tables; parts are built, and the config survives being saved."""
    config = _config(name, tmp_path)
    student, teacher = MODELS[name]
    algo, game, sampling, sft = config.algo, config.game, config.sampling, config.sft
    assert (algo.groups, algo.group_size, game.max_steps) == (128, 16, 5)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.2, 1.0, 0)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.0, 1.0)
    assert (algo.lr, algo.batch_size, algo.beta) == (2e-6, 128, 0.05)
    assert (algo.eps_low, algo.eps_high, algo.iterations) == (0.1, 0.3, 15)
    assert (algo.normalize_std, algo.aggregation, algo.epochs) == (True, "token_mean", 1)
    assert algo.seats == [Seat.AGENT, Seat.ATTACKER]
    assert (config.lora.rank, config.lora.alpha, config.lora.targets) == (128, 256, None)
    assert (sft.lr, sft.batch_size, sft.beta) == (5e-6, 128, 0.05)
    collect = config.collect
    assert (collect.agent, collect.attacker) == ("teacher", "teacher")
    assert (collect.episodes, collect.attacked_share) == (10_000, 1.0)
    assert config.eval.agents == ["base", "sft", "rl-5", "rl-10", "rl-15"]
    assert config.eval.attackers == ["none", "base", "sft", "rl-5", "rl-10", "rl-15"]
    assert (len(config.eval.seeds), config.eval.split) == (3, "eval")
    assert (config.population.draw, config.population.per) == (Draw.UNIFORM, OpponentPer.GROUP)
    assert (config.population.size, game.attack) == (0, True)
    assert game.injection.placement is Placement.RANDOM_LINE
    assert game.leak.scope is LeakScope.PARAMETERS
    rewards = [(p.attacker, p.agent) for p in vars(config.reward).values()]
    assert rewards[:3] == [(1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)]
    assert (algo.dtype, algo.mixed_precision, algo.gradient_checkpointing) == (
        "bfloat16",
        "bf16",
        True,
    )
    policy = part(config.policy, "policy")
    assert isinstance(policy, VLLMConfig)
    assert (policy.model, policy.dtype) == (student, "bfloat16")
    assert policy.max_model_len == game.max_prompt_tokens + sampling.max_tokens
    found = part(config.teachers["teacher"], "teacher")
    assert isinstance(found, OpenAIConfig)
    assert found.model == teacher
    assert typed(yaml.safe_load(yaml.safe_dump(plain(config)))) == config


def test_a_template_that_drops_thoughts_gets_a_prompt_a_step(tmp_path: Path) -> None:
    """Qwen3's template rewrites earlier turns, Gemma's has no system role: history=turn works with both."""
    for name in MODELS:
        assert _config(name, tmp_path).game.history is History.TURN
    assert not chat_of("tiny-qwen3").keeps_thoughts
    assert not chat_of("tiny-gemma3").system_role


def test_filtering_by_the_teacher_is_at_a_fifth() -> None:
    """``scripts/filter_tasks.py`` keeps tasks solved more than 20 % of the time unless told otherwise."""
    text = (ROOT / "scripts" / "filter_tasks.py").read_text()
    assert 'config.pop("threshold", 0.2)' in text


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_those_of_the_real_classes(name: str) -> None:
    """Base and adapter, counted on the meta device by transformers and peft at the published sizes."""
    made, config = PUBLISHED[name]
    with torch.device("meta"):
        model = made(config)
    assert sum(p.numel() for p in model.parameters()) == SHAPES[name].parameters()
    adapted = get_peft_model(
        model,
        PeftLoraConfig(r=128, lora_alpha=256, target_modules="all-linear", task_type="CAUSAL_LM"),
        low_cpu_mem_usage=True,
    )
    counted = sum(p.numel() for n, p in adapted.named_parameters() if "lora_" in n)
    assert counted == SHAPES[name].lora_parameters(128)
    windowed = [kind for kind in getattr(config, "layer_types", ()) if kind == "sliding_attention"]
    shape = SHAPES[name]
    assert len(windowed) == shape.layers - shape.layers // shape.full_every
    each = 2 * config.num_key_value_heads * config.head_dim * 2
    full = shape.layers - len(windowed)
    assert shape.cache(4608, 2) == each * (full * 4608 + len(windowed) * 1024)
    assert shape.cache(100, 2) == each * shape.layers * 100


@pytest.mark.parametrize("name", MODELS)
def test_the_run_fits_one_gpu_and_the_readme_says_how(name: str, tmp_path: Path) -> None:
    """Parts add up, the engine stays within its share of 140 GiB, and the README shows these figures."""
    config = _config(name, tmp_path)
    shape = SHAPES[MODELS[name][0]]
    found = memory(shape, config)
    parts = {k: v for k, v in found.items() if ":" in k}
    assert found["both"] == pytest.approx(sum(parts.values()))
    assert found["engine"] < config.policy["gpu_memory_utilization"] * 140
    assert found["trainer"] + config.policy["gpu_memory_utilization"] * 140 < 135
    adapter = shape.lora_parameters(128) * 4 / GIB
    assert found["trainer: AdamW of the seats that learn"] == pytest.approx(4 * adapter)
    assert found["trainer: gradients of one seat"] == pytest.approx(adapter)
    readme = (ROOT / "README.md").read_text()
    for key, size in found.items():
        line = next(row for row in readme.split("\n") if row.startswith(f"| {key} |"))
        assert f" {size:.1f} " in line, key


def test_memory_is_worked_out_for_all_linear_layers_alone(tmp_path: Path) -> None:
    """Named modules are refused; without checkpointing activations grow."""
    config = _config("arlas_qwen3_14b", tmp_path)
    shape = SHAPES["Qwen/Qwen3-14B"]
    named = dataclasses.replace(config, lora=dataclasses.replace(config.lora, targets=["q_proj"]))
    with pytest.raises(ConfigurationError, match=r"lora\.targets=null"):
        memory(shape, named)
    whole = dataclasses.replace(
        config, algo=dataclasses.replace(config.algo, gradient_checkpointing=False)
    )
    key = "trainer: activations of a micro-batch"
    assert memory(shape, whole)[key] > 10 * memory(shape, config)[key]
