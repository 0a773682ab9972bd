"""Counts over saved episodes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from arlas.types import Episode, Outcome, Seat

_KEPT_SECONDS = 100_000
KINDS = ("training", "evaluation", "demonstrations")
"""What parts of a run are for; only evaluation says how good a policy is."""


@dataclass
class Tally:
    """What happened in some episodes. Outcomes and replies are counted over those without a fault.

    ``attacked`` had an attacker, ``exposed`` of them saw its text, ``leaks`` of those leaked;
    ``malformed`` and ``replies`` are turns, by seat; ``flat`` of ``groups`` had equal rewards throughout.
    """

    episodes: int = 0
    faults: int = 0
    attacked: int = 0
    exposed: int = 0
    leaks: int = 0
    successes: int = 0
    flat: int = 0
    groups: int = 0
    replies: Counter[Seat] = field(default_factory=Counter)
    malformed: Counter[Seat] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_SECONDS))

    @property
    def played(self) -> int:
        """Episodes without an infrastructure fault."""
        return self.episodes - self.faults

    def add(self, episode: Episode) -> None:
        """Counts one episode."""
        self.episodes += 1
        self.seconds.append(episode.seconds)
        if not episode.ok:
            self.faults += 1
            self.messages[episode.error or "unknown"] += 1
            return
        self.successes += episode.outcome is Outcome.SUCCESS
        if episode.attacker is not None:
            self.attacked += 1
            self.exposed += episode.verdict.exposed
            self.leaks += episode.verdict.exposed and episode.outcome is Outcome.LEAK
        for turn in episode.turns:
            self.replies[turn.seat] += 1
            self.malformed[turn.seat] += turn.action is None


@dataclass
class Tallies:
    """Counts by part of a run, ``iteration 3`` or the name of the folder, and the latest attacks of every
    outcome that the agent saw."""

    parts: dict[str, Tally] = field(default_factory=dict)
    samples: dict[Outcome, deque[Episode]] = field(
        default_factory=lambda: {outcome: deque(maxlen=3) for outcome in Outcome}
    )

    def total(self, kind: str) -> Tally:
        """All parts of one of the `KINDS` in one."""
        found = Tally()
        for name, part in self.parts.items():
            if _kind(name) != kind:
                continue
            for key in ("episodes", "faults", "attacked", "exposed", "leaks", "successes"):
                setattr(found, key, getattr(found, key) + getattr(part, key))
            found.flat, found.groups = found.flat + part.flat, found.groups + part.groups
            for counts in ("replies", "malformed", "messages"):
                getattr(found, counts).update(getattr(part, counts))
            found.seconds.extend(part.seconds)
        return found


def tally(folder: Path, saved: Iterable[tuple[Path, Episode]]) -> Tallies:
    """Counts all saved episodes of a run folder; see `analysis.episodes.SavedEpisodes`."""
    found = Tallies()
    rewards: dict[str, dict[tuple[object, ...], list[float]]] = {}
    for path, episode in saved:
        name = _part(path.relative_to(folder))
        part = found.parts.setdefault(name, Tally())
        part.add(episode)
        if not episode.ok:
            continue
        if episode.learner is not None and episode.learner in episode.rewards:
            group = (path, episode.learner, episode.task, episode.seed)
            known = rewards.setdefault(name, {}).setdefault(group, [])
            known.append(episode.rewards[episode.learner])
        if episode.verdict.exposed and episode.outcome is not None and planted(episode):
            found.samples[episode.outcome].append(episode)
    for name, groups in rewards.items():
        found.parts[name].groups = len(groups)
        found.parts[name].flat = sum(len(set(values)) == 1 for values in groups.values())
    return found


def planted(episode: Episode) -> list[str]:
    """The texts that the attacker planted, in order."""
    return [t.action for t in episode.turns if t.seat is Seat.ATTACKER and t.action is not None]


def _kind(part: str) -> str:
    """Teachers' games, and those that measure how often they win, are demonstrations."""
    if part.startswith("iteration "):
        return "training"
    made = part in ("demos", "rephrased", "nearpolicy") or part.startswith("rates-")
    return "demonstrations" if made else "evaluation"


def _part(path: Path) -> str:
    """``iterations/0003/episodes.jsonl`` → ``iteration 3``; else the first folder's name."""
    parts = path.parts
    if len(parts) > 2 and parts[0] == "iterations" and parts[1].isdigit():
        return f"iteration {int(parts[1])}"
    return parts[0] if len(parts) > 1 else "run folder"
