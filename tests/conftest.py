"""What all tests share: one thread a process, no network for models, and adapters of random weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

ARCHITECTURES = ("tiny-llama", "tiny-gemma3", "tiny-qwen3")

RandomAdapter = Callable[..., Path]


@pytest.fixture(scope="session")
def random_adapter(tmp_path_factory: pytest.TempPathFactory) -> RandomAdapter:
    """``random_adapter(model, seed, rank=4)``: the folder of a LoRA adapter that changes the model's answers."""
    import peft
    import torch

    from arlas.policies.models import load_model

    root, made = tmp_path_factory.mktemp("adapters"), {}

    def make(model: str, seed: int, rank: int = 4) -> Path:
        key = (model, seed, rank)
        if key not in made:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                config = peft.LoraConfig(
                    r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
                )
                adapted = peft.get_peft_model(load_model(model), config)
                for name, parameter in adapted.named_parameters():
                    if "lora_B" in name:
                        torch.nn.init.normal_(parameter, std=0.2)
                made[key] = root / f"{model.replace(':', '-')}-{seed}-{rank}"
                adapted.save_pretrained(made[key])
        return made[key]

    return make
