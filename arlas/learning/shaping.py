"""Shaping: what the learner sees besides the payoff. Penalties on length and on repetition, all off by default.

**Length, relative to the group** (Kimi k1.5, arXiv 2501.12599, section 2.3.3): among the usable episodes of a
group, λ = 0.5 − (len − min) / (max − min), with len the seat's action tokens in the whole episode. A good
episode gets λ, any other min(0, λ), and nobody gets anything if all are equally long. Kimi's "correct" is a
yes or no; here an episode is good if its raw reward lies *above* a threshold, by default the middle between
the least and the most that the payoff table can give the seat. So it works for graded rewards too: an agent
that neither completes nor leaks stands exactly in the middle of the dense table, and is not good.

**Length, close to the limit** (DAPO, arXiv 2503.14476, section 3.4): a reply costs nothing up to
L_max − L_cache tokens and falls linearly to −1 at L_max. An episode gets the *mean* over its replies, so that
it stays in [−1, 0] and playing more turns is not punished in itself.

**Repetition** (arXiv 2502.03373, section 4.4): an n-gram of tokens that stood in the same reply before is a
repetition. In the token form every token of a repeated n-gram has a constant taken off its advantage, once,
however many repeated n-grams it is part of. In the scalar form the reward changes by −P · (1 − different /
all), counting n-grams over all replies of the episode, each reply with a memory of its own.

Length penalties and the scalar form are added to the reward before the baseline, so they also decide which
groups are flat. The token form is added behind the baseline and the division by the deviation, and only in
groups that are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from arlas.choices import LengthPenalty, RepetitionPenalty
from arlas.rules import RewardConfig
from arlas.shaping import ShapingConfig, good_above
from arlas.types import Group, Seat, Segment


@dataclass(frozen=True)
class Shaping:
    """The switches with the numbers that follow from the payoff table and the sampling limit."""

    switches: ShapingConfig = field(default_factory=ShapingConfig)
    good_above: Mapping[Seat, float] = field(default_factory=lambda: dict.fromkeys(Seat, 0.0))
    longest: int = 1
    cache: int = 1

    @classmethod
    def of(cls, switches: ShapingConfig, reward: RewardConfig, max_tokens: int) -> Shaping:
        """For a run with this payoff table and at most ``max_tokens`` tokens a reply."""
        return cls(
            switches,
            {seat: good_above(switches, reward, seat) for seat in Seat},
            switches.longest(max_tokens),
            switches.cache(max_tokens),
        )


PLAIN = Shaping()
"""No shaping at all."""


@dataclass(frozen=True)
class Shaped:
    """One episode as a seat's learner sees it; penalties are what was added to the reward."""

    raw: float
    tokens: int
    """The seat's action tokens in the whole episode."""
    replies: int
    repeated: int = 0
    """Of those tokens, how many belong to an n-gram that their reply already held."""
    length: float = 0.0
    repetition: float = 0.0

    @property
    def reward(self) -> float:
        """The payoff with everything that is added to it."""
        return self.raw + self.length + self.repetition


def shape(group: Group, seat: Seat, shaping: Shaping, iteration: int) -> list[Shaped]:
    """The usable episodes of a group in the seat's eyes; ``iteration`` counts from 1.

    Raises ValueError on a reward that is not finite.
    """
    switches = shaping.switches
    raw_G = [episode.rewards[seat] for episode in group.usable]
    if not all(math.isfinite(r) for r in raw_G):
        raise ValueError(f"a reward is not finite: {raw_G}")
    said_G = [
        [reply for s in episode.segments.get(seat, ()) for reply in replies(s)]
        for episode in group.usable
    ]
    tokens_G = [sum(map(len, said)) for said in said_G]
    length_G = repetition_G = [0.0] * len(raw_G)
    if seat in switches.seats and switches.length is not LengthPenalty.NONE:
        weight = switches.length_weight * phase(iteration, switches.warmup, switches.ramp)
        if switches.length is LengthPenalty.GROUP:
            good_G = [r > shaping.good_above[seat] for r in raw_G]
            found_G = group_length(tokens_G, good_G)
        else:
            found_G = [
                mean([overlong(len(r), shaping.longest, shaping.cache) for r in said])
                for said in said_G
            ]
        length_G = [weight * x for x in found_G]
    if seat in switches.seats and switches.repetition is RepetitionPenalty.SCALAR:
        repetition_G = [
            -switches.repetition_scale * repeated_share(said, switches.ngram) for said in said_G
        ]
    repeated_G = [sum(sum(repeated(r, switches.ngram)) for r in said) for said in said_G]
    rows = zip(raw_G, tokens_G, map(len, said_G), repeated_G, length_G, repetition_G, strict=True)
    return [Shaped(*row) for row in rows]


def token_penalties(segment: Segment, seat: Seat, shaping: Shaping) -> tuple[float, ...]:
    """What is added to the advantage of each action token of a segment; empty if nothing ever is."""
    switches = shaping.switches
    if seat not in switches.seats or switches.repetition is not RepetitionPenalty.TOKENS:
        return ()
    return tuple(
        -switches.repetition_token * seen
        for reply in replies(segment)
        for seen in repeated(reply, switches.ngram)
    )


def replies(segment: Segment) -> list[tuple[int, ...]]:
    """The tokens of every reply in a segment."""
    return [segment.token_ids[start:stop] for start, stop in segment.spans()]


def phase(iteration: int, warmup: int, ramp: int) -> float:
    """0 in the first ``warmup`` iterations, then growing linearly to 1 over ``ramp`` of them."""
    behind = iteration - warmup
    if behind <= 0:
        return 0.0
    return 1.0 if ramp == 0 else min(1.0, behind / ramp)


def group_length(lengths_G: Sequence[int], good_G: Sequence[bool]) -> list[float]:
    """Kimi k1.5's length reward of every episode of a group; see the module's text."""
    if not lengths_G or min(lengths_G) == max(lengths_G):
        return [0.0] * len(lengths_G)
    least, span = min(lengths_G), max(lengths_G) - min(lengths_G)
    scores_G = [0.5 - (n - least) / span for n in lengths_G]
    return [s if good else min(0.0, s) for s, good in zip(scores_G, good_G, strict=True)]


def overlong(length: int, longest: int, cache: int) -> float:
    """DAPO's soft penalty of a reply: 0 up to ``longest - cache`` tokens, -1 from ``longest`` on."""
    return -min(1.0, max(0.0, (length - (longest - cache)) / cache))


def repeated(reply: Sequence[int], n: int) -> list[bool]:
    """Which tokens belong to an n-gram that began earlier in the reply too, in time O(length · log n)."""
    seen: set[int] = set()
    until, found = 0, [False] * len(reply)
    grams = _ngrams(reply, n)
    for at in range(len(reply)):
        if at < len(grams):
            if grams[at] in seen:
                until = at + n
            seen.add(grams[at])
        found[at] = at < until
    return found


def repeated_share(said: Sequence[Sequence[int]], n: int) -> float:
    """1 - different / all n-grams of an episode's replies; 0 if no reply is that long."""
    grams = [_ngrams(reply, n) for reply in said]
    total = sum(map(len, grams))
    return 1.0 - sum(len(set(g)) for g in grams) / total if total else 0.0


def _ngrams(tokens: Sequence[int], n: int) -> list[int]:
    """A number for the n-gram that begins at each place: equal for equal n-grams and for no others.

    Grams of width w + s are pairs of overlapping grams of width w, so log2(n) passes suffice.
    """
    grams, width = list(tokens), 1
    while width < n:
        step = min(width, n - width)
        numbers: dict[tuple[int, int], int] = {}
        pairs = zip(grams, grams[step:], strict=False)
        grams = [numbers.setdefault(pair, len(numbers)) for pair in pairs]
        width += step
    return grams


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing, as who says nothing is not punished."""
    return math.fsum(values) / len(values) if values else 0.0
