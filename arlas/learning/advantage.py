"""Advantages: how much better an episode went than could be expected.

The default compares with the group (GRPO, arXiv 2402.03300; ARLAS section 3.3); `leave_one_out` and
`MovingBaseline` are other baselines. All are computed over whole episodes, for each seat on its own rewards,
before episodes are cut into segments, so that a long episode weighs no more in the baseline than a short one
(invariant 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

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
    _check(rewards_G)
    if len(rewards_G) < 2:
        return None
    mean = math.fsum(rewards_G) / len(rewards_G)
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards_G) / len(rewards_G))
    if std < flat:
        return None
    return [(r - mean) / (std if normalize_std else 1.0) for r in rewards_G]


def leave_one_out(rewards_G: Sequence[float], flat: float = FLAT) -> list[float] | None:
    """``r - mean of the others' r`` (RLOO, arXiv 2402.14740), for the G usable episodes of one group.

    It is ``G / (G - 1)`` times the distance to the group's mean. None and ValueError as for
    `group_advantages`.
    """
    centred_G = group_advantages(rewards_G, normalize_std=False, flat=flat)
    scale = len(rewards_G) / max(1, len(rewards_G) - 1)
    return None if centred_G is None else [scale * a for a in centred_G]


@dataclass
class MovingBaseline:
    """One seat's expected reward as a moving average (role-conditioned advantages, SPIRAL, arXiv 2506.24119).

    Episode by episode, in the order they come: ``b ← α·b + (1 - α)·r``, then ``A = r - b``, starting at
    b = 0. As b has just taken in r, A is α times the distance to the average before it: an episode's own
    reward scales its advantage and does not shift it. ``averages`` is state: it belongs in the checkpoint.
    """

    decay: float
    averages: dict[str, float] = field(default_factory=dict)

    def advantages(self, rewards_G: Sequence[float], key: str = "") -> list[float]:
        """Advantages of episodes under the average called ``key``, which moves on.

        Raises ValueError on a reward that is not finite, and then has not moved.
        """
        _check(rewards_G)
        found, average = [], self.averages.get(key, 0.0)
        for reward in rewards_G:
            average = self.decay * average + (1.0 - self.decay) * reward
            found.append(reward - average)
        if found:
            self.averages[key] = average
        return found


def _check(rewards_G: Sequence[float]) -> None:
    if not all(math.isfinite(r) for r in rewards_G):
        raise ValueError(f"a reward is not finite: {list(rewards_G)}")
