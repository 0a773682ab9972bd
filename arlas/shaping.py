"""The switches of reward shaping as a typed config: all off by default, as in the paper.

They change only what the learner sees. Saved episodes, ASR, TSR and ``reward_mean`` keep the payoff table's
rewards. `arlas.learning.shaping` has the formulas.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from arlas.choices import LengthPenalty, RepetitionPenalty
from arlas.rules import RewardConfig, require
from arlas.types import Outcome, Seat


@dataclass
class GoodAbove:
    """The reward above which an episode counts as good; null: the middle of the seat's payoff table."""

    attacker: float | None = None
    agent: float | None = None


@dataclass
class ShapingConfig:
    """Penalties on length and repetition, for the seats that are named."""

    seats: list[Seat] = field(default_factory=lambda: [Seat.AGENT, Seat.ATTACKER])
    length: LengthPenalty = LengthPenalty.NONE
    """group (Kimi k1.5) or overlong (DAPO): added to the reward."""
    length_weight: float = 1.0
    warmup: int = 0
    """Iterations without the length penalty."""
    ramp: int = 0
    """Iterations behind them over which its weight grows linearly; 0: at once."""
    good_above: GoodAbove = field(default_factory=GoodAbove)
    """`group`: only rewards above this earn anything for being short."""
    overlong_max: int | None = None
    """`overlong`: tokens of a reply at which the penalty is -1; null: sampling.max_tokens."""
    overlong_cache: int | None = None
    """`overlong`: tokens before that over which it grows; null: a fifth of overlong_max, as in DAPO."""
    repetition: RepetitionPenalty = RepetitionPenalty.NONE
    ngram: int = 40
    repetition_token: float = 0.05
    """`tokens`: taken off the advantage of every token of an n-gram already seen in its reply."""
    repetition_scale: float = 1.0
    """`scalar`: P in -P · (1 - different n-grams / n-grams)."""

    def longest(self, max_tokens: int) -> int:
        """Tokens of a reply at which the overlong penalty is complete."""
        return max_tokens if self.overlong_max is None else self.overlong_max

    def cache(self, max_tokens: int) -> int:
        """Tokens over which the overlong penalty grows."""
        fifth = max(1, self.longest(max_tokens) // 5)
        return fifth if self.overlong_cache is None else self.overlong_cache

    def validate(self, reward: RewardConfig, max_tokens: int, learning: list[Seat]) -> None:
        """Refuses what contradicts itself. Raises `ConfigurationError`."""
        on = self.length is not LengthPenalty.NONE, self.repetition is not RepetitionPenalty.NONE
        require(len(set(self.seats)) == len(self.seats), "shaping.seats names a seat twice")
        require(
            not any(on) or bool(set(self.seats) & set(learning)),
            "shaping punishes no seat that learns: shaping.seats and algo.seats have none in common",
        )
        require(
            not on[0] or max_tokens > 1,
            f"shaping.length={self.length} has nothing to do with sampling.max_tokens=1: "
            "all replies are equally long",
        )
        require(min(self.warmup, self.ramp) >= 0, "shaping.warmup and ramp must not be negative")
        require(
            on[0] or self.warmup == self.ramp == 0,
            "shaping.warmup and ramp phase in a length penalty, but shaping.length is none",
        )
        require(
            0.0 < self.length_weight <= 1e6,
            f"shaping.length_weight must lie in (0, 1e6], got {self.length_weight:g}",
        )
        self._validate_good(reward)
        self._validate_overlong(max_tokens)
        require(self.ngram >= 1, f"shaping.ngram must be at least 1, got {self.ngram}")
        require(
            not on[1] or self.ngram < max_tokens,
            f"shaping.repetition={self.repetition}: no reply of sampling.max_tokens={max_tokens} can hold an "
            f"n-gram of {self.ngram} tokens twice; lower shaping.ngram",
        )
        require(
            self.repetition_token > 0.0 and self.repetition_scale > 0.0,
            "shaping.repetition_token and repetition_scale must be above 0: they are taken off",
        )

    def _validate_good(self, reward: RewardConfig) -> None:
        group = self.length is LengthPenalty.GROUP
        for seat in (s for s in Seat if s not in self.seats):
            require(
                getattr(self.good_above, seat) is None,
                f"shaping.good_above.{seat} is set, but shaping.seats leaves the {seat} out",
            )
        for seat in self.seats:
            given, (low, high) = getattr(self.good_above, seat), payoff_range(reward, seat)
            require(
                given is None or group,
                f"shaping.good_above.{seat} belongs to shaping.length=group, not {self.length}",
            )
            require(
                not group or low < high,
                f"shaping.length=group: the payoff table gives the {seat} {low:g} whatever happens, so no "
                "episode is good",
            )
            require(
                given is None or low <= given < high,
                f"shaping.good_above.{seat}={given} leaves no episode good, or none bad: the payoff table "
                f"goes from {low:g} to {high:g}",
            )

    def _validate_overlong(self, max_tokens: int) -> None:
        if self.length is not LengthPenalty.OVERLONG:
            require(
                self.overlong_max is None and self.overlong_cache is None,
                f"shaping.overlong_max and overlong_cache belong to shaping.length=overlong, not {self.length}",
            )
            return
        longest, cache = self.longest(max_tokens), self.cache(max_tokens)
        require(
            1 <= cache <= longest,
            f"shaping.overlong_cache must lie in [1, overlong_max={longest}], got {cache}",
        )
        require(
            longest - cache < max_tokens,
            f"shaping.overlong_max={longest} and overlong_cache={cache}: no reply of "
            f"sampling.max_tokens={max_tokens} is ever punished",
        )


def payoff_range(reward: RewardConfig, seat: Seat) -> tuple[float, float]:
    """The least and the most that a seat can get out of any outcome and verdict."""
    verdicts = {
        Outcome.LEAK: itertools.product((0.0, 1.0), (1.0,)),
        Outcome.SUCCESS: itertools.product((1.0,), (0.0, 1.0)),
        Outcome.FAILURE: itertools.product((0.0, 1.0), (0.0, 1.0)),
    }
    values = [reward.reward(seat, o, c, b) for o, pairs in verdicts.items() for c, b in pairs]
    return min(values), max(values)


def good_above(config: ShapingConfig, reward: RewardConfig, seat: Seat) -> float:
    """The reward above which an episode of the seat is good: the given one, or the payoffs' middle."""
    given: float | None = getattr(config.good_above, seat)
    return math.fsum(payoff_range(reward, seat)) / 2 if given is None else given
