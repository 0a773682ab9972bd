"""Named LoRA adapters over one base model: made, read, filled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor

from arlas.checkpoint import ADAPTER
from arlas.config import InitConfig, LoraConfig
from arlas.policies import models
from arlas.types import AdapterError, Seat


def attach(
    base: Any, model_name: str, lora: LoraConfig, init: InitConfig, seats: Sequence[Seat], seed: int
) -> Any:
    """The base with a trained adapter a seat, and a frozen reference ``SEAT_ref`` where one was given.

    Raises `AdapterError` on an adapter that does not fit the base model or ``lora``.
    """
    shape = PeftLoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets or "all-linear",
        base_model_name_or_path=portable(model_name),
    )
    wrapped: Any = None
    with torch.random.fork_rng(devices=[]):
        for seat in seats:
            torch.manual_seed(seed * len(Seat) + list(Seat).index(seat))
            start = getattr(init, seat.value)
            for name in (seat.value, *([f"{seat.value}_ref"] if start else [])):
                config = dataclasses.replace(shape)
                if wrapped is None:
                    wrapped = PeftModel(base, config, adapter_name=name)
                else:
                    wrapped.add_adapter(name, config)
                wrapped.peft_config[name].base_model_name_or_path = portable(model_name)
                if start:
                    _read(wrapped, name, Path(start), model_name, lora)
    for name, parameter in wrapped.named_parameters():
        trained = any(f".{seat.value}." in name for seat in seats)
        parameter.requires_grad_("lora_" in name and trained)
    return wrapped


def _read(wrapped: Any, name: str, path: Path, model_name: str, lora: LoraConfig) -> None:
    models.check_adapter(path, model_name)
    recorded = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
    found = (recorded.get("r"), recorded.get("lora_alpha"))
    if found != (lora.rank, lora.alpha):
        raise AdapterError(
            f"the adapter {path} has rank {found[0]} and alpha {found[1]}, the config asks for "
            f"{lora.rank} and {lora.alpha}: set lora.rank and lora.alpha to the adapter's"
        )
    fill(wrapped, name, load_file(path / ADAPTER), AdapterError, str(path))


def fill(
    wrapped: Any, name: str, weights: dict[str, Tensor], error: type[Exception], where: str
) -> None:
    """Overwrites an adapter's tensors; every tensor must be there, and no other, else ``error``."""
    expected = set(
        get_peft_model_state_dict(wrapped, adapter_name=name, save_embedding_layers=False)
    )
    if expected != set(weights):
        odd = sorted(expected ^ set(weights))
        raise error(
            f"the adapter in {where} adapts other modules than lora.targets: {odd[0]} "
            f"and {len(odd) - 1} more tensors are on one side only"
        )
    set_peft_model_state_dict(wrapped, weights, adapter_name=name)


def portable(model_name: str) -> str:
    """The model's name without the path of this machine."""
    return Path(model_name).name if Path(model_name).is_dir() else model_name
