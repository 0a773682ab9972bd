"""Attention for batches in which many short queries look at long caches."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.masking_utils import sdpa_mask

from arlas.types import ConfigurationError

GROUPED = "arlas_grouped"
"""The name of `grouped_attention` among transformers' attention implementations."""


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Grouped-query attention that reads each key and value once, where transformers' sdpa repeats them.

    ``query`` [B, heads, T, D], ``key`` and ``value`` [B, kv_heads, S, D]; the queries of a group are laid
    along T. Returns [B, T, heads, D].
    """
    for unsupported in ("softcap", "s_aux", "position_bias"):
        if options.get(unsupported) is not None:
            raise ConfigurationError(
                f"this model's attention needs {unsupported}: set policy.attention=eager"
            )
    batch, heads, length, width = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], groups * length, width)
    if (
        attention_mask is None
    ):  # outside of the engine: plain causal attention, the last T slots ask
        slots = torch.arange(key.shape[2], device=query.device)
        attention_mask = (slots <= slots[-length:, None])[None, None]
    if length > 1 and groups > 1:
        attention_mask = attention_mask.repeat(1, 1, groups, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, scale=scaling
    )
    return out.reshape(batch, heads, length, value.shape[-1]).transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register(GROUPED, grouped_attention)
transformers.AttentionMaskInterface.register(GROUPED, sdpa_mask)
