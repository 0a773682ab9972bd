"""Drawing tokens from logits: pure functions over a batch whose rows have samplings of their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from arlas.types import Sampling


def uniforms(seed: int, n: int) -> list[float]:
    """The ``n`` numbers in [0, 1) by which a request draws its tokens: a row's own, whatever its batch."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    numbers: list[float] = torch.rand(n, generator=generator, dtype=torch.float64).tolist()
    return numbers


def draw(
    logits_BV: Tensor,
    uniforms_B: Tensor,
    samplings: Sequence[Sampling],
    contexts: Sequence[Sequence[int]],
) -> tuple[list[int], list[float]]:
    """One token a row and its log-probability under the distribution that it was drawn from.

    Inverse-CDF sampling: a row's token depends on its own logits and its own uniform number alone.
    ``contexts`` holds each row's tokens so far, read by the repetition penalty only.
    """
    logits_BV = logits_BV.float()
    temperatures = [s.temperature or 1.0 for s in samplings]
    if any(t != 1.0 for t in temperatures):
        logits_BV = logits_BV / torch.tensor(temperatures, device=logits_BV.device)[:, None]
    filtered = [i for i, s in enumerate(samplings) if _filters(s)]
    if filtered:
        logits_BV = logits_BV.clone()
        for i in filtered:
            logits_BV[i] = filter_logits(logits_BV[i], samplings[i], contexts[i])
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
    greedy = [s.temperature == 0.0 for s in samplings]
    if all(greedy):
        tokens_B = logprobs_BV.argmax(-1)
    else:
        cdf_BV = logprobs_BV.exp().cumsum(-1, dtype=torch.float64)
        total_B = cdf_BV[:, -1]
        # Strictly below the total, so that the first entry above it exists and has mass of its own.
        target_B = uniforms_B.to(total_B.device) * total_B
        target_B = torch.minimum(target_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
        tokens_B = torch.searchsorted(cdf_BV, target_B[:, None], right=True)[:, 0]
        tokens_B = tokens_B.clamp_max(logits_BV.shape[-1] - 1)  # rows that are not a number
        if any(greedy):
            chosen_B = torch.tensor(greedy, device=tokens_B.device)
            tokens_B = torch.where(chosen_B, logprobs_BV.argmax(-1), tokens_B)
    picked_B = logprobs_BV.gather(-1, tokens_B[:, None])[:, 0]
    return tokens_B.tolist(), picked_B.tolist()


def _filters(sampling: Sampling) -> bool:
    plain = sampling.repetition_penalty == 1.0
    if (
        sampling.temperature == 0.0
    ):  # greedy: the largest logit survives every filter but the penalty
        return not plain
    return not (plain and sampling.top_k <= 0 and sampling.top_p >= 1.0 and sampling.min_p <= 0.0)


def filter_logits(logits_V: Tensor, sampling: Sampling, context: Sequence[int]) -> Tensor:
    """Logits (after temperature) with everything outside top-k, top-p and min-p at −inf.

    The repetition penalty (CTRL, arXiv 1909.05858) divides positive and multiplies negative logits of
    tokens that were seen; scaling by a temperature commutes with it.
    """
    if sampling.repetition_penalty != 1.0 and context:
        seen = torch.tensor(sorted(set(context)), device=logits_V.device)
        values = logits_V[seen]
        penalty = sampling.repetition_penalty
        logits_V = logits_V.clone()
        logits_V[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if sampling.temperature == 0.0:
        return logits_V
    if 0 < sampling.top_k < len(logits_V):
        kth = logits_V.topk(sampling.top_k).values[-1]
        logits_V = logits_V.masked_fill(logits_V < kth, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = logits_V.softmax(-1).sort(descending=True)
        # The token that crosses top_p stays in: what counts is the mass *before* it.
        outside = ordered.cumsum(-1) - ordered >= sampling.top_p
        outside[0] = False
        logits_V = logits_V.masked_fill(outside.scatter(0, order, outside), -torch.inf)
    if sampling.min_p > 0.0:
        probabilities = logits_V.softmax(-1)
        logits_V = logits_V.masked_fill(
            probabilities < sampling.min_p * probabilities.max(), -torch.inf
        )
    return logits_V
