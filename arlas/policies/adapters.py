"""One base model and many LoRA adapters, any mixture of them in one batch, nothing ever merged."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor

Signature = tuple[tuple[str, int], ...]
"""Inner names and ranks of the adapters that are stacked in a layer."""


@dataclass(frozen=True)
class Stack:
    """The adapters of one layer side by side: ``down`` [Σ ranks, in], ``up`` [out, Σ ranks] with the scaling."""

    signature: Signature
    down: Tensor
    up: Tensor


class AdaptedModel:
    """A base model and its PEFT adapters, which are never merged into it (invariant 8).

    A batch of one adapter, or of none, takes PEFT's plain path. A mixed batch multiplies with all of its
    adapters at once and masks, for each row, the ranks that are not its own: one product where PEFT's mixed
    batches need several small ones for every adapter and layer. Above ``max_stacked`` ranks that would
    waste more than it saves, and PEFT's ``adapter_names`` takes over.

    Adapters get names of their own inside PEFT: any name will do outside, and none is ever used twice.
    """

    max_stacked = 256

    def __init__(self, base: Any) -> None:
        self.base = base.requires_grad_(False)
        self._peft: Any = None
        self._active: str | None = None
        self._enabled = False
        self._numbers = itertools.count()
        self._outer: dict[str, str] = {}
        self._hooked: set[Any] = set()
        self._stacked: frozenset[str] = frozenset()
        self._stacks: dict[Any, Stack] = {}
        self._masks: dict[Signature, Tensor] = {}

    def load(self, name: str, path: Path) -> str:
        """Adds an adapter; returns its inner name."""
        inner = f"n{next(self._numbers)}"
        if self._peft is None:
            self._peft = peft.PeftModel.from_pretrained(
                self.base, str(path), adapter_name=inner, low_cpu_mem_usage=True
            )
        else:
            self._peft.load_adapter(str(path), adapter_name=inner, low_cpu_mem_usage=True)
        self._peft.eval().requires_grad_(False)
        self._outer[inner] = name
        for module in self._peft.modules():
            if isinstance(module, LoraLayer) and module not in self._hooked:
                module.register_forward_hook(self._add)
                self._hooked.add(module)
        self._peft.base_model.enable_adapter_layers()
        self._active, self._enabled = None, True
        self.rest()
        return inner

    def delete(self, inner: str) -> None:
        """Removes an adapter's weights."""
        self.rest()
        del self._outer[inner]
        if self._outer:  # PEFT needs an active adapter, and would choose one itself with a warning
            self._active = next(iter(self._outer))
            self._peft.set_adapter(self._active, inference_mode=True)
            self._peft.delete_adapter(inner)
        else:
            self.base, self._peft, self._active = self._peft.unload(), None, None
            self._hooked.clear()

    def rest(self) -> None:
        """Forgets what was stacked, so that the next batch does not depend on the batches before."""
        self._stacked = frozenset()
        self._stacks.clear()

    def close(self) -> None:
        """Lets go of all weights."""
        self.rest()
        self._hooked.clear()
        self.base = self._peft = None

    def forward(self, adapters: list[str | None], inputs: dict[str, Any]) -> Any:
        """Logits of a batch whose rows use different adapters; None is the base model."""
        if self._peft is None:
            return self.base(**inputs).logits
        names = set(adapters)
        if len(names) == 1:
            (name,) = names
            self._enable(name is not None)
            if name is not None and name != self._active:
                self._peft.set_adapter(name, inference_mode=True)
                self._active = name
            return self._peft(**inputs).logits
        wanted = frozenset(name for name in names if name is not None)
        if sum(self._peft.peft_config[name].r for name in wanted) > self.max_stacked:
            self._enable(True)
            mixed = [name or "__base__" for name in adapters]
            return self._peft(**inputs, adapter_names=mixed).logits
        self._enable(False)
        self._stack(wanted)
        try:
            for signature in {stack.signature for stack in self._stacks.values()}:
                own = [
                    [float(a == name) for name, r in signature for _ in range(r)] for a in adapters
                ]
                self._masks[signature] = torch.tensor(own, device=self.base.device)[:, None]
            return self._peft(**inputs).logits
        finally:
            self._masks.clear()

    def _enable(self, on: bool) -> None:
        if on != self._enabled:
            layers = self._peft.base_model
            layers.enable_adapter_layers() if on else layers.disable_adapter_layers()
            self._enabled = on

    def _stack(self, wanted: frozenset[str]) -> None:
        """Lays the adapters of a batch side by side, unless they already are, in the order of their names."""
        if wanted <= self._stacked:
            return
        self._stacked = wanted
        self._stacks.clear()
        order = sorted(wanted, key=lambda inner: self._outer[inner])
        for module in self._hooked:
            names = [name for name in order if name in module.lora_A]
            if names:
                down = [module.lora_A[name].weight for name in names]
                up = [module.lora_B[name].weight * module.scaling[name] for name in names]
                signature = tuple((name, len(a)) for name, a in zip(names, down, strict=True))
                self._stacks[module] = Stack(signature, torch.cat(down), torch.cat(up, dim=1))

    def _add(self, module: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        """The forward hook of every layer with adapters: adds what the stacked adapters contribute."""
        stack = self._stacks.get(module) if self._masks else None
        if stack is None:
            return None
        ranks = torch.nn.functional.linear(args[0].to(stack.down.dtype), stack.down)
        ranks = ranks * self._masks[stack.signature]
        return output + torch.nn.functional.linear(ranks, stack.up).to(output.dtype)
