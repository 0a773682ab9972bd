"""The cross-play matrix: every attacker against every agent, laid out like Fig. 3 of the ARLAS paper."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.patches import Rectangle

from analysis.figures import figure, label, save
from arlas.statistics import (
    CROSSPLAY_HEADER,
    NO_ATTACK,
    OLD_HEADER,
    CrossplayRow,
    cell_row,
    mean_se,
)
from arlas.types import NO_GUARD

AVERAGE = "average"


@dataclass(frozen=True)
class Cell:
    """A rate over seeds: mean and standard error as shares (NaN: not applicable; the error also with one
    seed), and the number of episodes counted. ``parts`` is how many attackers an average is over."""

    mean: float
    se: float
    n: int
    seeds: int
    parts: int = 1


NOT_APPLICABLE = Cell(math.nan, math.nan, 0, 0, 0)


@dataclass(frozen=True)
class Matrix:
    """One measure over all pairs. ``cells[attacker, agent]``; the rows end with the average row."""

    attackers: tuple[str, ...]
    agents: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]


def read_crossplay(path: Path) -> list[CrossplayRow]:
    """The rows of a ``crossplay.csv``; rates are computed again from the counts.

    A pair, guard and seed that stands there twice counts once, as it was last written. Raises ValueError with
    the line number on anything that is no such row.
    """
    rows: dict[tuple[str, str, int, str], CrossplayRow] = {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) not in (CROSSPLAY_HEADER, OLD_HEADER):
            raise ValueError(f"{path}: the header must be {','.join(CROSSPLAY_HEADER)}")
        for record in reader:
            try:
                row = cell_row(
                    record["attacker"],
                    record["agent"],
                    int(record["seed"]),
                    episodes=int(record["episodes"]),
                    exposed=int(record["exposed"]),
                    leaks=int(record["leaks"]),
                    successes=int(record["successes"]),
                    guard=record.get("guard") or NO_GUARD,
                    stopped=int(record.get("stopped") or 0),
                )
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {reader.line_num}: {error}") from error
            rows[row.attacker, row.agent, row.seed, row.guard] = row
    return list(rows.values())


def stages(names: Iterable[str]) -> tuple[str, ...]:
    """Policy names in the order of training: none, base, sft, rl-1 …; others behind, as they came.

    A policy with runtime layers (``rl-1 + filter``) follows the one without.
    """
    first = {NO_ATTACK: 0, "base": 1, "sft": 2}

    def key(name: str) -> tuple[int, int]:
        name = name.partition(" + ")[0]
        found = re.fullmatch(r"rl-(\d+)", name)
        return (3, int(found[1])) if found else (first.get(name, 4), 0)

    return tuple(sorted(dict.fromkeys(names), key=key))


def matrix(rows: Sequence[CrossplayRow], measure: str) -> Matrix:
    """Mean and standard error over seeds of ``asr`` or ``tsr``.

    The average row is the mean over the attackers, no attack left out, first within each seed. Cells in
    which no attack was seen are not part of it. An agent behind runtime layers is a column of its own.
    """
    attackers = stages(r.attacker for r in rows)
    agents = stages(r.player for r in rows)
    cells: dict[tuple[str, str], Cell] = {}
    for agent in agents:
        by_seed: dict[int, list[float]] = {}
        counted, parts = 0, set()
        for attacker in attackers:
            found = [r for r in rows if (r.attacker, r.player) == (attacker, agent)]
            rates = [(r, rate) for r in found if (rate := getattr(r, measure)) is not None]
            n = sum(_trials(r, measure) for r, _ in rates)
            cells[attacker, agent] = _cell([rate for _, rate in rates], n)
            if attacker != NO_ATTACK:
                counted += n
                parts |= {r.attacker for r, _ in rates}
                for row, rate in rates:
                    by_seed.setdefault(row.seed, []).append(rate)
        means = [sum(v) / len(v) for v in by_seed.values()]
        cells[AVERAGE, agent] = _cell(means, counted, len(parts))
    return Matrix((*attackers, AVERAGE), agents, cells)


def _trials(row: CrossplayRow, measure: str) -> int:
    return row.exposed if measure == "asr" and row.attacker != NO_ATTACK else row.episodes


def _cell(rates: Sequence[float], n: int, parts: int = 1) -> Cell:
    return Cell(*mean_se(rates), n, len(rates), parts) if rates else NOT_APPLICABLE


def cell_text(cell: Cell) -> str:
    """A cell in per cent: ``12.5 ± 1.3``, without an error for one seed, or ``n/a``."""
    if math.isnan(cell.mean):
        return "n/a"
    spread = "" if math.isnan(cell.se) else f" ± {100 * cell.se:.1f}"
    return f"{100 * cell.mean:.1f}{spread}"


def plot_crossplay(csv_path: Path, png_path: Path) -> Path:
    """Draws the heatmap of a ``crossplay.csv``. Raises ValueError if the file holds no row."""
    rows = read_crossplay(csv_path)
    if not rows:
        raise ValueError(f"{csv_path} holds no cell yet: run the cross-play first")
    panels = [
        (
            matrix(rows, "asr"),
            "Attack success rate (ASR)",
            "lower is better for the agent",
            "Oranges",
        ),
        (matrix(rows, "tsr"), "Task success rate (TSR)", "higher is better for the agent", "Blues"),
    ]
    across, down = len(panels[0][0].agents), len(panels[0][0].attackers)
    made = figure(3.4 + 2 * max(1.3 * across, 3.2), 2.2 + 0.62 * down)
    made.suptitle("Cross-play: every attacker against every agent")
    for axes, (shown, title, better, colours) in zip(made.subplots(1, 2), panels, strict=True):
        _panel(made, axes, shown, f"{title}, %\n{better}", colours)
    count = len({r.seed for r in rows})
    spread = (
        f"mean ± standard error over {count} seeds"
        if count > 1
        else "one seed, so no standard error"
    )
    made.supxlabel(
        f"Each cell: {spread}; n: episodes counted (ASR: those in which the agent saw the attack; "
        "without an attack all,\nwhich shows the data that the agent misplaces by itself). "
        "Hatched: not applicable, no attack was seen. The average leaves no attack out.",
        fontsize=8,
    )
    return save(made, png_path)


def _panel(made: Any, axes: Any, shown: Matrix, title: str, colours: str) -> None:
    values = [
        [100 * shown.cells[attacker, agent].mean for agent in shown.agents]
        for attacker in shown.attackers
    ]
    known = [v for row in values for v in row if not math.isnan(v)]
    # The scale ends at the next ten, so that small rates are still told apart.
    top = min(100.0, 10.0 * math.ceil(max([*known, 1.0]) / 10.0))
    image = axes.imshow(values, cmap=colours, vmin=0.0, vmax=top, aspect="auto")
    for y, attacker in enumerate(shown.attackers):
        for x, agent in enumerate(shown.agents):
            cell = shown.cells[attacker, agent]
            if math.isnan(cell.mean):
                axes.add_patch(
                    Rectangle((x - 0.5, y - 0.5), 1, 1, fc="white", ec="0.6", hatch="///", lw=0)
                )
            text = cell_text(cell)
            if cell.n:
                text += f"\nn = {cell.n}"
            if attacker == AVERAGE and 0 < cell.parts < len(_attacks(shown)):
                text += f", {cell.parts} of {len(_attacks(shown))}"
            dark = cell.mean > 0.6 * top / 100
            box = {"fc": "white", "ec": "none", "pad": 1} if math.isnan(cell.mean) else None
            axes.text(
                x,
                y,
                text,
                ha="center",
                va="center",
                fontsize=8,
                bbox=box,
                color="white" if dark else "black",
            )
    for edge in [0.5] * (NO_ATTACK in shown.attackers) + [len(shown.attackers) - 1.5]:
        axes.axhline(edge, color="white", linewidth=4)
    axes.set_xticks(range(len(shown.agents)), [label(a, 16) for a in shown.agents])
    names = {NO_ATTACK: "no attack", AVERAGE: "average"}
    axes.set_yticks(
        range(len(shown.attackers)), [names.get(a, label(a, 16)) for a in shown.attackers]
    )
    axes.set_xlabel("agent")
    axes.set_ylabel("attacker")
    axes.set_title(title, fontsize=10)
    made.colorbar(image, ax=axes, label="%")


def _attacks(shown: Matrix) -> list[str]:
    return [a for a in shown.attackers if a not in (NO_ATTACK, AVERAGE)]
