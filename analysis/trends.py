"""Whether a measure moves from one stage to the next: paired differences within a cross-play.

Cells of one seed play the same tasks and seeds, so two agents (or two attackers) are compared episode by episode.
Intervals are 95 % cluster bootstrap over tasks; seeds are pooled.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.crossplay import stages
from analysis.episodes import SavedEpisodes
from arlas.statistics import NO_ATTACK, cluster_bootstrap
from arlas.text import markdown
from arlas.types import NO_GUARD, Episode, Outcome

Key = tuple[int, str, int]
"""The seed of the cross-play, the task, and the episode's own seed."""


@dataclass(frozen=True)
class Pairing:
    """How a measure differs between two policies in one seat against the same opponent, as shares.

    ``first`` and ``last`` are (hits, episodes) over the pairs; ``change`` is last − first with its interval.
    """

    opponent: str
    names: tuple[str, str]
    first: tuple[int, int]
    last: tuple[int, int]
    change: tuple[float, float, float]


@dataclass(frozen=True)
class Cells:
    """Hits of every played cell: ``leaks`` only where the agent saw the attack, ``successes`` everywhere."""

    leaks: Mapping[tuple[str, str], Mapping[Key, bool]]
    successes: Mapping[tuple[str, str], Mapping[Key, bool]]

    @property
    def attackers(self) -> tuple[str, ...]:
        """Their names, in the order of training."""
        return stages(a for a, _ in self.successes)

    @property
    def agents(self) -> tuple[str, ...]:
        """Their names, in the order of training."""
        return stages(a for _, a in self.successes)


def read_cells(folders: Iterable[Path]) -> Cells:
    """The cells of cross-play folders, those behind runtime layers left out.

    Raises ValueError if a folder holds none, or a cell twice.
    """
    leaks: dict[tuple[str, str], dict[Key, bool]] = defaultdict(dict)
    successes: dict[tuple[str, str], dict[Key, bool]] = defaultdict(dict)
    for folder in folders:
        records = sorted(folder.glob("cells/*/cell.json"))
        if not records:
            raise ValueError(f"{folder} holds no cells of a cross-play")
        for path in records:
            told = json.loads(path.read_text("utf-8"))
            if told.get("guard", NO_GUARD) != NO_GUARD:
                continue
            pair, seed = (str(told["attacker"]), str(told["agent"])), int(told["seed"])
            if any(key[0] == seed for key in successes[pair]):
                raise ValueError(
                    f"{path}: {pair[0]} against {pair[1]}, seed {seed}, is there twice"
                )
            for _, episode in SavedEpisodes(path.parent):
                if not episode.ok:
                    continue
                key = (seed, episode.task, episode.seed)
                successes[pair][key] = episode.outcome is Outcome.SUCCESS
                if pair[0] == NO_ATTACK or episode.verdict.exposed:
                    leaks[pair][key] = _leaked(episode)
    return Cells(leaks, successes)


def _leaked(episode: Episode) -> bool:
    return episode.outcome is Outcome.LEAK


def paired(
    opponent: str, names: tuple[str, str], first: Mapping[Key, bool], last: Mapping[Key, bool]
) -> Pairing | None:
    """The difference over the episodes that both have; None if they have none in common."""
    common = sorted(first.keys() & last.keys())
    if not common:
        return None
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for key in common:
        sums[key[1]][0] += last[key] - first[key]
        sums[key[1]][1] += 1

    def mean(totals_RC: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = totals_RC[:, 0] / totals_RC[:, 1]
        return found

    return Pairing(
        opponent,
        names,
        (sum(first[k] for k in common), len(common)),
        (sum(last[k] for k in common), len(common)),
        cluster_bootstrap(list(sums.values()), mean),
    )


def over_agents(
    cells: Mapping[tuple[str, str], Mapping[Key, bool]],
    attackers: Sequence[str],
    agents: Sequence[str],
) -> list[Pairing]:
    """Along every row: from the first to the last agent that met this attacker."""
    found = []
    for attacker in attackers:
        met = [a for a in agents if cells.get((attacker, a))]
        if len(met) > 1:
            pair = paired(
                attacker, (met[0], met[-1]), cells[attacker, met[0]], cells[attacker, met[-1]]
            )
            found += [pair] if pair else []
    return found


def over_attackers(
    cells: Mapping[tuple[str, str], Mapping[Key, bool]],
    attackers: Sequence[str],
    agents: Sequence[str],
) -> list[Pairing]:
    """Down every column: from the first to the last attacker (no attack left out) that met this agent."""
    found = []
    for agent in agents:
        met = [a for a in attackers if a != NO_ATTACK and cells.get((a, agent))]
        if len(met) > 1:
            pair = paired(agent, (met[0], met[-1]), cells[met[0], agent], cells[met[-1], agent])
            found += [pair] if pair else []
    return found


def trends_markdown(cells: Cells) -> str:
    """The three questions of the paper's Fig. 3 as tables: rows, columns, and what training costs."""
    attackers, agents = cells.attackers, [a for a in cells.agents if a != "base"]
    rows = over_agents(cells.leaks, attackers, agents)
    columns = over_attackers(cells.leaks, [a for a in attackers if a != "base"], agents)
    costs = over_agents(cells.successes, attackers, agents)
    parts = [
        "Changes are in points, with 95 % cluster bootstrap intervals over tasks; the same episodes on both sides.",
        _table("Attack success along a row", "attacker", "agents", rows),
        _table("Attack success down a column", "agent", "attackers", columns),
        _table("Task success along a row", "attacker", "agents", costs),
    ]
    return "\n\n".join(parts) + "\n"


def _table(title: str, opponent: str, seat: str, pairs: Sequence[Pairing]) -> str:
    lines = [
        f"**{title}**",
        "",
        f"| {opponent} | {seat} | first | last | change |",
        "|---|---|---|---|---|",
    ]
    for p in pairs:
        change, low, high = (100 * v for v in p.change)
        first, last = (f"{hits} of {n}" for hits, n in (p.first, p.last))
        told = f"{change:+.0f} ({low:+.0f} to {high:+.0f})"
        lines.append(
            f"| {markdown(p.opponent)} | {markdown(' → '.join(p.names))} | {first} | {last} | {told} |"
        )
    return "\n".join(lines)
