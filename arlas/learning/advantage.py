"""Advantages: how much better an episode went than its group (GRPO, arXiv 2402.03300; ARLAS section 3.3).

Computed over whole episodes, for each seat on its own rewards, before episodes are cut into segments, so
that a long episode weighs no more in the baseline than a short one (invariant 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FLAT = 1e-6
"""A group whose rewards have a standard deviation below this teaches nothing."""


def group_advantages(
    rewards_G: Sequence[float], normalize_std: bool = True, flat: float = FLAT
) -> list[float] | None:
    """``(r - mean(r)) / std(r)`` with the population's std, for the G usable episodes of one group.

    ``normalize_std=False`` leaves the division out (Dr.GRPO, arXiv 2503.20783). None if the group must be
    dropped whole: fewer than two episodes, or all rewards equal. Raises ValueError on a reward that is not
    finite.
    """
    if not all(math.isfinite(r) for r in rewards_G):
        raise ValueError(f"a reward is not finite: {list(rewards_G)}")
    if len(rewards_G) < 2:
        return None
    mean = math.fsum(rewards_G) / len(rewards_G)
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards_G) / len(rewards_G))
    if std < flat:
        return None
    return [(r - mean) / (std if normalize_std else 1.0) for r in rewards_G]
