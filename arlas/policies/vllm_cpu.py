"""Faster adapters for vLLM on the CPU.

vLLM's own CPU code copies an adapter's matrices once for every *token* of a step, which costs more than the model
itself. Here the tokens of a step are grouped by adapter, and each group meets its adapter's matrices where they lie.
Replaces one class inside vLLM 0.32; the tests compare every row with transformers and PEFT.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


class GroupedPunica(PunicaWrapperCPU):  # type: ignore[misc]
    """vLLM's wrapper around all adapters of a model, with another way to compute linear layers."""

    _tokens = -1
    _groups: list[tuple[int, Tensor | None]] = []
    _grid_SK: Tensor | None = None
    _place_T: Tensor | None = None

    def update_metadata(self, *args: Any, **kwargs: Any) -> None:
        """Called once a step: which slot each token's adapter lies in; −1 is no adapter."""
        super().update_metadata(*args, **kwargs)
        slots_T = self.token_lora_indices
        found = slots_T.unique().tolist()
        self._tokens = len(slots_T)
        self._groups = [
            (slot, None if len(found) == 1 else (slots_T == slot).nonzero()[:, 0])
            for slot in found
            if slot >= 0
        ]
        self._grid_SK = None
        if len(found) > 1 and min(found) >= 0:
            self._arrange(slots_T)

    def _arrange(self, slots_T: Tensor) -> None:
        """Where decoding spreads a step evenly over adapters, one batched product serves them all.

        ``_grid_SK`` holds the tokens of each slot (padded with token 0), ``_place_T`` where each token lies in it.
        """
        counts_S = torch.bincount(slots_T)
        longest = int(counts_S.max())
        if len(counts_S) * longest > 2 * len(slots_T) + 16:
            return
        order_T = torch.argsort(slots_T, stable=True)
        starts_S = torch.cumsum(counts_S, 0) - counts_S
        sorted_T = slots_T[order_T]
        column_T = torch.arange(len(slots_T)) - starts_S[sorted_T]
        grid_SK = torch.zeros(len(counts_S), longest, dtype=torch.long)
        grid_SK[sorted_T, column_T] = order_T
        place_T = torch.empty_like(order_T)
        place_T[order_T] = sorted_T * longest + column_T
        self._grid_SK, self._place_T = grid_SK, place_T

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: tuple[Tensor, ...],
        lora_b_stacked: tuple[Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **kwargs: Any,
    ) -> None:
        """y += scale · x Aᵀ Bᵀ with each token's own A [slot, 1, rank, in] and B [slot, 1, out, rank], in place.

        ``output_slices`` are the widths of the layers that vLLM has packed into one, q, k and v for example.
        """
        y, x = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
        if len(x) != self._tokens:  # not the layout that update_metadata saw
            raise RuntimeError(f"{len(x)} tokens in a step of {self._tokens}")
        if self._grid_SK is not None:
            slots = len(self._grid_SK)
            own_SKi = x[self._grid_SK.view(-1)].view(slots, -1, x.shape[-1])
            start = 0
            for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                low_SKr = torch.bmm(own_SKi, a[:slots, 0].transpose(1, 2))
                change = torch.bmm(low_SKr, b[:slots, 0].transpose(1, 2)).view(-1, width)
                y[:, start : start + width].add_(change[self._place_T], alpha=scale)
                start += width
            return
        for slot, rows in self._groups:
            own = x if rows is None else x[rows]
            start = 0
            for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                change = (own @ a[slot, 0].T) @ b[slot, 0].T
                part = y[:, start : start + width]
                if rows is None:
                    part.add_(change, alpha=scale)
                else:
                    part.index_add_(0, rows, change, alpha=scale)
                start += width


def install() -> None:
    """Makes engines that are started from now on use `GroupedPunica`."""
    from vllm.platforms import current_platform

    name = f"{GroupedPunica.__module__}.{GroupedPunica.__qualname__}"
    type(current_platform).get_punica_wrapper = classmethod(lambda cls: name)
