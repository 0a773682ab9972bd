"""The policy loss and its parts as pure functions of per-token tensors; ``_N`` is one axis of action tokens.

**KL estimators.** With ``d = log π - log π_ref`` at tokens drawn from π, Schulman's note
(http://joschu.net/blog/kl-approx.html) gives three estimates of the *value* of KL(π ‖ π_ref):

- ``k1 = d``: unbiased, high variance;
- ``k2 = d² / 2``: biased, low variance;
- ``k3 = exp(-d) - 1 + d``: unbiased, low variance, never negative.

A loss needs the right *gradient*, and differentiating a value estimate at fixed samples does not give it,
because the samples depend on π too. The gradient of the reverse KL is E_π[d · ∇log π]. Differentiating k2
gives exactly this; k1 gives E_π[∇log π] = 0; k3 gives E_π[(1 - π_ref/π) ∇log π], the gradient of the
*forward* KL(π_ref ‖ π). So ``k1+`` and ``k3+`` report the value of k1 and k3 and have the gradient of k2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arlas.choices import WeightBound, WeightLevel
from arlas.config import AlgoConfig
from arlas.types import ConfigurationError

Sums = dict[str, Tensor]
"""Sums over action tokens, except names that end in ``_max``; see `add_sums`."""

# No weight between two policies that agree at all comes near e^20; beyond lies only overflow.
_LOG_LIMIT = 20.0
_TINY = 1e-30


def kl_estimate(name: str, logprobs_N: Tensor, ref_logprobs_N: Tensor) -> Tensor:
    """KL(π ‖ π_ref) at each token by the estimator ``name``; see the module's text for its gradient.

    Raises `ConfigurationError` on a name other than k1, k2, k3, k1+, k3+.
    """
    d = logprobs_N - ref_logprobs_N
    if name == "k1":
        return d
    if name == "k2":
        return 0.5 * d.square()
    if name == "k3":
        return torch.exp((-d).clamp(max=_LOG_LIMIT)) - 1.0 + d
    if name in ("k1+", "k3+"):
        gradient = 0.5 * d.square()
        return kl_estimate(name[:2], logprobs_N, ref_logprobs_N).detach() + (
            gradient - gradient.detach()
        )
    raise ConfigurationError(f"algo.kl_estimator must be k1, k2, k3, k1+ or k3+, got {name!r}")


def importance_weights(
    old_logprobs_N: Tensor,
    sampler_logprobs_N: Tensor,
    cap: float,
    level: WeightLevel = WeightLevel.TOKEN,
    bound: WeightBound = WeightBound.TRUNCATE,
    segment_N: Tensor | None = None,
) -> Tensor:
    """Detached weights between trainer and engine (invariant 3); they correct for the engine's rounding.

    A token's ratio is ``π_old / π_sampler``. At the level of sequences every token of a segment (named by
    ``segment_N``, each with all its action tokens here) has the *product* of the segment's ratios, which is
    the exact weight of what was sampled in it; a geometric mean would be milder and biased. ``truncate``
    makes it ``min(w, cap)``; ``mask`` makes it 0 outside ``[1 / cap, cap]``, so that such tokens teach
    nothing at all. ``cap`` 0 gives ones.
    """
    if cap == 0.0:
        return torch.ones_like(old_logprobs_N)
    weights_N = _unbounded(old_logprobs_N, sampler_logprobs_N, level, segment_N)
    if bound is WeightBound.MASK:
        inside_N = (weights_N <= cap) & (weights_N >= 1.0 / cap)
        return torch.where(inside_N, weights_N, torch.zeros_like(weights_N))
    return weights_N.clamp(max=cap)


def _unbounded(
    old_logprobs_N: Tensor, sampler_logprobs_N: Tensor, level: WeightLevel, segment_N: Tensor | None
) -> Tensor:
    gap_N = old_logprobs_N.detach() - sampler_logprobs_N.detach()
    if level is WeightLevel.SEQUENCE:
        if segment_N is None:
            raise ValueError("importance weights of sequences need segment_N")
        sums_S = gap_N.new_zeros(int(segment_N.max()) + 1).index_add(0, segment_N, gap_N)
        gap_N = sums_S[segment_N]
    return torch.exp(gap_N.clamp(-_LOG_LIMIT, _LOG_LIMIT))


def policy_loss(ratio_N: Tensor, advantages_N: Tensor, eps_low: float, eps_high: float) -> Tensor:
    """``-min(R·A, clip(R, 1-ε_low, 1+ε_high)·A)`` at each token (ARLAS section 3.3)."""
    clipped_N = ratio_N.clamp(1.0 - eps_low, 1.0 + eps_high)
    return -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)


@dataclass(frozen=True)
class Aggregation:
    """How token losses become one number: Σ weight(episode) · loss / denominator."""

    weights: tuple[float, ...]
    denominator: float


def aggregate(name: str, tokens: Sequence[int], constant_length: int) -> Aggregation:
    """The weights of one optimizer batch, whose episodes have ``tokens`` action tokens each.

    ``token_mean`` is a mean over all action tokens; ``sequence_mean`` a mean over each episode's tokens,
    then over episodes; ``constant`` a sum over each episode's tokens divided by a constant length, then a
    mean over episodes (Dr.GRPO, arXiv 2503.20783). Raises `ConfigurationError` on another name.
    """
    if name == "token_mean":
        return Aggregation((1.0,) * len(tokens), float(sum(tokens)))
    if name == "sequence_mean":
        return Aggregation(tuple(1.0 / n if n else 0.0 for n in tokens), float(len(tokens)))
    if name == "constant":
        return Aggregation((1.0 / constant_length,) * len(tokens), float(len(tokens)))
    raise ConfigurationError(
        f"algo.aggregation must be token_mean, sequence_mean or constant, got {name!r}"
    )


def grpo_loss(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    sampler_logprobs_N: Tensor,
    ref_logprobs_N: Tensor | None,
    advantages_N: Tensor,
    weights_N: Tensor,
    denominator: float,
    algo: AlgoConfig,
    segment_N: Tensor | None = None,
) -> tuple[Tensor, Sums]:
    """This micro-batch's part of the loss of its optimizer batch, and sums for its metrics.

    Loss: Σ weight · w · (policy loss + β · KL) / denominator, with ``w`` the detached engine weights. Only
    ``logprobs_N`` carries a gradient. ``ref_logprobs_N`` may be None if β is 0, and ``segment_N`` unless
    the engine weights are those of sequences. As ``denominator`` is that of the whole optimizer batch, parts
    simply add up (invariant 4).
    """
    ratio_N = _ratio(logprobs_N, old_logprobs_N.detach())
    engine_N = _ratio(old_logprobs_N.detach(), sampler_logprobs_N)
    importance_N = importance_weights(
        old_logprobs_N,
        sampler_logprobs_N,
        algo.importance_cap,
        algo.importance_level,
        algo.importance_bound,
        segment_N,
    )
    loss_N = policy_loss(ratio_N, advantages_N, algo.eps_low, algo.eps_high)
    kl_N = torch.zeros_like(logprobs_N)
    if ref_logprobs_N is not None:
        kl_N = kl_estimate(algo.kl_estimator, logprobs_N, ref_logprobs_N.detach())
        if algo.beta > 0.0:
            loss_N = loss_N + algo.beta * kl_N
    loss = (loss_N * importance_N * weights_N).sum() / denominator
    with torch.no_grad():
        clipped_N = torch.where(
            advantages_N > 0, ratio_N > 1.0 + algo.eps_high, ratio_N < 1.0 - algo.eps_low
        )
        weights = old_logprobs_N, sampler_logprobs_N, algo.importance_level, segment_N
        truncates = algo.importance_cap > 0.0 and algo.importance_bound is WeightBound.TRUNCATE
        capped_N = _unbounded(*weights) > algo.importance_cap if truncates else importance_N < 0
        sums: Sums = {
            "tokens": torch.ones_like(ratio_N).sum(),
            "loss": loss.detach(),
            "kl": kl_N.sum(),
            "entropy": -logprobs_N.sum(),
            "ratio": ratio_N.sum(),
            "ratio_max": ratio_N.max(),
            "clipped": clipped_N.float().sum(),
            "engine_ratio": engine_N.sum(),
            "engine_ratio_max": engine_N.max(),
            "capped": capped_N.float().sum(),
            "masked": (importance_N == 0.0).float().sum(),
            "importance": importance_N.sum(),
            "importance_sq": importance_N.square().sum(),
        }
    return loss, sums


def add_sums(a: Sums, b: Sums) -> Sums:
    """Adds the sums of two micro-batches; of names that end in ``_max`` the larger is kept."""
    joined = dict(a)
    for name, value in b.items():
        if name not in joined:
            joined[name] = value
        elif name.endswith("_max"):
            joined[name] = torch.maximum(joined[name], value)
        else:
            joined[name] = joined[name] + value
    return joined


def summarize(sums: Mapping[str, Tensor], steps: int) -> dict[str, float]:
    """Means over action tokens out of the sums of an update of ``steps`` optimizer steps.

    ``ess`` is the effective sample size of the engine weights, (Σw)² / Σw², as a share of the tokens (0 if
    all are masked); ``clip_share`` the share of tokens whose policy gradient the clip has masked;
    ``capped_share`` and ``masked_share`` those whose engine weight was cut to the cap, or masked.
    """
    value = {name: float(total) for name, total in sums.items()}
    tokens = value["tokens"]
    return {
        "loss": value["loss"] / steps,
        "kl": value["kl"] / tokens,
        "entropy": value["entropy"] / tokens,
        "ratio_mean": value["ratio"] / tokens,
        "ratio_max": value["ratio_max"],
        "clip_share": value["clipped"] / tokens,
        "engine_ratio_mean": value["engine_ratio"] / tokens,
        "engine_ratio_max": value["engine_ratio_max"],
        "capped_share": value["capped"] / tokens,
        "masked_share": value["masked"] / tokens,
        "ess": value["importance"] ** 2 / (max(value["importance_sq"], _TINY) * tokens),
    }


def _ratio(a_N: Tensor, b_N: Tensor) -> Tensor:
    return torch.exp((a_N - b_N).clamp(-_LOG_LIMIT, _LOG_LIMIT))
