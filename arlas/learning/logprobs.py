"""Log-probabilities of action tokens without ever holding the logits of a batch (invariant 12).

The transformer's body runs on whole rows, but hidden states are kept only where an action token is
predicted, and the output head sees ``chunk`` of those at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from arlas.learning.batch import Sample, TrainBatch, micro_batches
from arlas.types import ConfigurationError, Segment

_LAYERS = {"full_attention", "sliding_attention"}


def can_share(config: Any) -> bool:
    """Whether rows may hold several sequences: attention takes any mask, and no layer has another memory."""
    layers = getattr(config, "layer_types", None)
    known = set(layers) <= _LAYERS if layers else not getattr(config, "sliding_window", None)
    return known and getattr(config, "_attn_implementation", None) == "sdpa"


def attention_masks(batch: TrainBatch, config: Any) -> Any:
    """What the body takes as ``attention_mask``: None for plain rows, else boolean [B, 1, T, T].

    Models with sliding-window layers take one mask per kind of layer; distances count along the path.
    """
    if batch.end_BT is None:
        return None
    k_T = torch.arange(batch.end_BT.shape[1], device=batch.end_BT.device)
    q_T1 = k_T[:, None]
    seen_B1TT = ((k_T <= q_T1) & (q_T1 < batch.end_BT[:, None, :]))[:, None]
    if "sliding_attention" not in (getattr(config, "layer_types", None) or ()):
        return seen_B1TT
    position_BT = batch.position_ids_BT
    distance_B1TT = (position_BT[:, :, None] - position_BT[:, None, :])[:, None]
    return {
        "full_attention": seen_B1TT,
        "sliding_attention": seen_B1TT & (distance_B1TT < config.sliding_window),
    }


def hidden_states(base: Any, batch: TrainBatch) -> Tensor:
    """The body's last hidden states [N, d] at the places that predict action tokens."""
    hidden_BTd: Tensor = base.get_decoder()(
        input_ids=batch.input_ids_BT,
        attention_mask=attention_masks(batch, base.config),
        position_ids=batch.position_ids_BT,
        use_cache=False,
    ).last_hidden_state
    return hidden_BTd[batch.row_N, batch.column_N]


def action_logprobs(base: Any, batch: TrainBatch, temperature: float, chunk: int) -> Tensor:
    """log π(action token | everything before it) at the sampler's ``temperature``, float32 [N].

    ``base`` is the causal language model, with its adapters in place. Logits are divided by the same
    temperature as the sampler's before the softmax (invariant 3). Raises `ConfigurationError` if the
    output head is trained.
    """
    return action_logprobs_and_kl(base, batch, None, temperature, chunk)[0]


def action_logprobs_and_kl(
    base: Any, batch: TrainBatch, ref_hidden_Nd: Tensor | None, temperature: float, chunk: int
) -> tuple[Tensor, Tensor]:
    """`action_logprobs`, and the exact KL(π ‖ π_ref) over the vocabulary at the same places, [N] each.

    ``ref_hidden_Nd`` are the reference's `hidden_states`; both share the output head. None gives a KL of 0.
    """
    result: tuple[Tensor, Tensor] = _Head.apply(  # type: ignore[no-untyped-call]
        hidden_states(base, batch), ref_hidden_Nd, batch.targets_N, *_head(base), temperature, chunk
    )
    return result


def check_model(base: Any) -> None:
    """Raises `ConfigurationError` if body and head, put together here, are not the model's own forward pass.

    Some models scale their logits in a way of their own; four made-up tokens tell.
    """
    probe = Sample(Segment((1, 2, 3, 4), (False, True, True, True), (0.0,) * 4), 0.0)
    (batch,) = micro_batches([probe], 4)
    batch = batch.to(base.device)
    with torch.no_grad():
        found_N = action_logprobs(base, batch, 1.0, 4)
        own_NV = base(input_ids=batch.input_ids_BT).logits[0].float().log_softmax(-1)
    own_N = own_NV.gather(1, batch.targets_N[:, None])[:, 0]
    gap = float((found_N - own_N).abs().max())
    if not gap < (1e-2 if base.dtype == torch.float32 else 0.3):
        raise ConfigurationError(
            f"{type(base).__name__} does more to its logits than a soft cap (its log-probabilities differ by "
            f"{gap:.3g}): this model cannot be trained yet"
        )


def _head(base: Any) -> tuple[Tensor, Tensor | None, float | None]:
    head = base.get_output_embeddings()
    if type(head) is not torch.nn.Linear or head.weight.requires_grad:
        raise ConfigurationError(
            "the output head must be a plain frozen linear layer: take it out of lora.targets"
        )
    return head.weight, head.bias, getattr(base.config, "final_logit_softcapping", None)


class _Head(torch.autograd.Function):
    """Hidden states [N, d] → log-probabilities of targets [N] and KL to the reference [N].

    Each output belongs to one row of hidden states, so its gradient is a row [d] times a number that
    arrives later. That row is computed at once, while the chunk's logits are there: they are neither kept
    nor computed twice.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_Nd: Tensor,
        ref_hidden_Nd: Tensor | None,
        targets_N: Tensor,
        weight_Vd: Tensor,
        bias_V: Tensor | None,
        softcap: float | None,
        temperature: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        wanted = ctx.needs_input_grad[0]
        logprobs_N = torch.empty(len(hidden_Nd), dtype=torch.float32, device=hidden_Nd.device)
        kl_N = torch.zeros_like(logprobs_N)
        rows_Nd = torch.empty_like(hidden_Nd) if wanted else None
        kl_rows_Nd = torch.empty_like(hidden_Nd) if wanted and ref_hidden_Nd is not None else None
        for start in range(0, len(hidden_Nd), chunk):
            part = slice(start, start + chunk)
            logits_CV, slope_CV = _logits(hidden_Nd[part], weight_Vd, bias_V, softcap, temperature)
            targets_C1 = targets_N[part, None]
            log_p_CV = logits_CV.sub_(logits_CV.logsumexp(-1, keepdim=True))
            logprobs_N[part] = log_p_CV.gather(1, targets_C1)[:, 0]
            if ref_hidden_Nd is not None:
                ref_CV, _ = _logits(ref_hidden_Nd[part], weight_Vd, bias_V, softcap, temperature)
                ref_CV.sub_(ref_CV.logsumexp(-1, keepdim=True))
                gap_CV = torch.sub(log_p_CV, ref_CV, out=ref_CV)
                p_CV = log_p_CV.exp()
                kl_C1 = (p_CV * gap_CV).sum(-1, keepdim=True)
                kl_N[part] = kl_C1[:, 0]
                if kl_rows_Nd is not None:
                    gap_CV.sub_(kl_C1).mul_(p_CV)
                    kl_rows_Nd[part] = _through(gap_CV, slope_CV, weight_Vd, temperature)
            if rows_Nd is not None:
                rest_CV = log_p_CV.exp_().neg_()
                rest_CV.scatter_add_(1, targets_C1, torch.ones_like(rest_CV[:, :1]))
                rows_Nd[part] = _through(rest_CV, slope_CV, weight_Vd, temperature)
        ctx.save_for_backward(rows_Nd, kl_rows_Nd)
        return logprobs_N, kl_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        rows_Nd, kl_rows_Nd = ctx.saved_tensors
        gradient_Nd = rows_Nd * gradients[0][:, None].to(rows_Nd.dtype)
        if kl_rows_Nd is not None:
            gradient_Nd = gradient_Nd + kl_rows_Nd * gradients[1][:, None].to(rows_Nd.dtype)
        return gradient_Nd, None, None, None, None, None, None, None


def _logits(
    hidden_Cd: Tensor,
    weight_Vd: Tensor,
    bias_V: Tensor | None,
    softcap: float | None,
    temperature: float,
) -> tuple[Tensor, Tensor | None]:
    """Float32 logits over temperature, and the slope of the soft cap where there is one."""
    logits_CV = F.linear(hidden_Cd.to(weight_Vd.dtype), weight_Vd, bias_V).float()
    slope_CV = None
    if softcap is not None:
        logits_CV = logits_CV.div_(softcap).tanh_()
        slope_CV = 1.0 - logits_CV.square()
        logits_CV.mul_(softcap)
    return logits_CV.div_(temperature), slope_CV


def _through(
    gradient_CV: Tensor, slope_CV: Tensor | None, weight_Vd: Tensor, temperature: float
) -> Tensor:
    """A gradient by logits-over-temperature carried back to hidden states. Overwrites its argument."""
    gradient_CV.div_(temperature)
    if slope_CV is not None:
        gradient_CV.mul_(slope_CV)
    return gradient_CV.to(weight_Vd.dtype) @ weight_Vd
