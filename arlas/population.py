"""The attackers of all iterations so far, and how the agent's opponents are drawn from them."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from arlas.choices import Draw, OpponentPer
from arlas.config import PopulationConfig
from arlas.policies.base import Policy
from arlas.types import ConfigurationError, PolicyRef, Seat


@dataclass(frozen=True)
class Member:
    """One attacker checkpoint. ``folder`` is relative to the run folder; ``wins`` counts leaks it caused."""

    version: str
    iteration: int
    folder: str
    episodes: int = 0
    wins: int = 0

    @property
    def ref(self) -> PolicyRef:
        """The member as a policy of the attacker's seat."""
        return PolicyRef(Seat.ATTACKER, self.version, f"attacker-{self.iteration:04d}")

    @property
    def win_rate(self) -> float:
        """Share of episodes won against the agent, with one win and one loss added."""
        return (self.wins + 1) / (self.episodes + 2)


class Population:
    """All attackers so far, oldest first (population-based learning, ARLAS section 3.3)."""

    def __init__(self, config: PopulationConfig, members: Iterable[Member] = ()) -> None:
        self.config = config
        self.members = list(members)

    @property
    def latest(self) -> Member:
        """The newest attacker. Raises `ConfigurationError` if there is none."""
        if not self.members:
            raise ConfigurationError("the population is empty: no attacker can be drawn")
        return self.members[-1]

    def add(self, member: Member) -> None:
        """Appends a member and forgets the oldest beyond ``population.size``."""
        self.members.append(member)
        if self.config.size:
            self.members = self.members[-self.config.size :]

    def weights(self) -> list[float]:
        """The members' probabilities under the configured draw, oldest first."""
        members, latest = self.members, self.latest
        match self.config.draw:
            case Draw.UNIFORM:
                raw = [1.0] * len(members)
            case Draw.LATEST:
                raw = [float(m is latest) for m in members]
            case Draw.RECENCY:
                raw = [
                    0.5 ** ((latest.iteration - m.iteration) / self.config.half_life)
                    for m in members
                ]
            case Draw.PFSP:
                raw = [m.win_rate**self.config.pfsp_power for m in members]
        return [w / sum(raw) for w in raw]

    def draw(self, size: int, rng: random.Random) -> tuple[PolicyRef, ...]:
        """Opponents for a group of ``size`` episodes: one for all, or one each."""
        if self.config.per is OpponentPer.GROUP:
            return (rng.choices(self.members, self.weights())[0].ref,) * size
        return tuple(m.ref for m in rng.choices(self.members, self.weights(), k=size))

    def record(self, version: str, episodes: int, wins: int) -> None:
        """Counts the episodes that a member played against the agent, and those it won."""
        self.members = [
            replace(m, episodes=m.episodes + episodes, wins=m.wins + wins)
            if m.version == version
            else m
            for m in self.members
        ]

    def state(self) -> list[dict[str, Any]]:
        """The members as plain containers, for a bundle."""
        return [asdict(m) for m in self.members]

    @classmethod
    def from_state(cls, config: PopulationConfig, state: Sequence[dict[str, Any]]) -> Population:
        """The population that `state` described."""
        return cls(config, (Member(**row) for row in state))


class AdapterCache:
    """Keeps at most ``limit`` of many adapters loaded in an engine, the least recently used leaving first.

    Pinned adapters stay and are not counted.
    """

    def __init__(self, policy: Policy, limit: int) -> None:
        self.policy = policy
        self.limit = limit
        self._loaded: OrderedDict[str, Path] = OrderedDict()
        self._pinned: set[str] = set()

    def pin(self, name: str, path: Path) -> None:
        """Loads an adapter that stays until it is dropped."""
        self._pinned.add(name)
        self.ensure({name: path})

    def drop(self, name: str) -> None:
        """Unloads an adapter."""
        self._pinned.discard(name)
        if self._loaded.pop(name, None) is not None:
            self.policy.unload_adapter(name)

    def ensure(self, wanted: dict[str, Path]) -> None:
        """Loads what is wanted, evicting what is not. All of ``wanted`` is loaded afterwards."""
        for name in wanted:
            if name in self._loaded:
                self._loaded.move_to_end(name)
        missing = {n: p for n, p in wanted.items() if n not in self._loaded}
        counted = [n for n in {**self._loaded, **missing} if n not in self._pinned]
        evictable = [n for n in counted if n not in wanted]
        over = len(counted) - self.limit
        for name in evictable[: max(0, over)]:
            self.drop(name)
        for name, path in missing.items():
            self.policy.load_adapter(name, path)
            self._loaded[name] = path
