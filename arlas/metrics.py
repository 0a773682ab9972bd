"""Figures of a batch of episodes, each with the number it is a share of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arlas.types import ArlasError, Episode, Group, Outcome, Seat, StopReason


@dataclass(frozen=True)
class Counts:
    """What happened in a number of episodes without infrastructure faults.

    ``leaks`` counts only episodes in which the agent saw the attacker's text (invariant 11), or, without
    an attacker, all leaks. ``stopped`` counts the calls that runtime layers kept from the world.
    """

    episodes: int = 0
    exposed: int = 0
    leaks: int = 0
    successes: int = 0
    errors: int = 0
    stopped: int = 0

    @property
    def asr(self) -> float:
        """Attack success rate among exposed episodes; NaN if there is none."""
        return self.leaks / self.exposed if self.exposed else float("nan")

    @property
    def tsr(self) -> float:
        """Task success rate; NaN without episodes."""
        return self.successes / self.episodes if self.episodes else float("nan")


def count(episodes: Iterable[Episode]) -> Counts:
    """Counts outcomes; episodes with status error are counted apart."""
    total = exposed = leaks = successes = errors = stopped = 0
    for episode in episodes:
        if not episode.ok:
            errors += 1
            continue
        total += 1
        attacked = episode.attacker is not None
        exposed += attacked and episode.verdict.exposed
        counted = episode.verdict.exposed if attacked else True
        leaks += counted and episode.outcome is Outcome.LEAK
        successes += episode.outcome is Outcome.SUCCESS
        stopped += len(episode.stops)
    return Counts(total, exposed, leaks, successes, errors, stopped)


def check_faults(episodes: Sequence[Episode], max_share: float) -> None:
    """Results that mostly failed are no results. Raises `ArlasError` with the first fault."""
    failed = [e for e in episodes if not e.ok]
    if len(failed) > max_share * len(episodes):
        raise ArlasError(
            f"{len(failed)} of {len(episodes)} episodes failed (algo.max_error_share={max_share}); "
            f"the first: {failed[0].error}"
        )


def summarize(groups: Sequence[Group], prefix: str) -> dict[str, float]:
    """The figures of one seat's groups under ``prefix/…``."""
    episodes = [e for g in groups for e in g.episodes]
    counts = count(episodes)
    turns = [t for e in episodes if e.ok for t in e.turns]
    row: dict[str, float] = {
        "games": counts.episodes,
        "errors": counts.errors,
        "exposed": counts.exposed,
        "leaks": counts.leaks,
        "successes": counts.successes,
        "asr": counts.asr,
        "tsr": counts.tsr,
        "game_steps": _mean([sum(t.seat is Seat.AGENT for t in e.turns) for e in episodes if e.ok]),
    }
    for seat in Seat:
        own = [t for t in turns if t.seat is seat]
        row[f"{seat}_turns"] = len(own)
        row[f"{seat}_malformed"] = _mean([t.action is None for t in own])
        row[f"{seat}_truncated"] = _mean([t.stop_reason is StopReason.LENGTH for t in own])
        row[f"{seat}_tokens"] = _mean([t.completion_tokens for t in own])
    return {f"{prefix}/{k}": float(v) for k, v in row.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
