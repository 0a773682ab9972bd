"""The ablation chart: reward and response length of every arm of a sweep (the layout of the recipe's Fig. 5)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.curves import read_metrics
from analysis.figures import PALETTE, figure, label, save
from analysis.report import table
from analysis.sweeps import Curves, compare, last_quarter
from arlas.statistics import mean_se
from arlas.types import ConfigurationError, Seat

MEASURES = ("reward_mean", "reply_tokens")
"""What is drawn: the payoff, without any shaping, and the tokens of a reply."""
COLUMNS = (
    *MEASURES,
    *("repeated_share", "reward_shaped_mean"),
    *("penalty_length", "penalty_repetition", "penalty_tokens", "groups_flat", "groups_refilled"),
)
HEADER = ("seat", "arm", "seed", "iteration", *COLUMNS)
BASELINE = "baseline"
_WORDS = {"reward_mean": "reward (payoff table)", "reply_tokens": "response length in tokens"}
_STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Row:
    """One iteration of one run, as one seat's learner saw it; NaN where nothing was logged."""

    seat: str
    arm: str
    seed: int
    iteration: int
    values: tuple[float, ...]
    """In the order of `COLUMNS`."""


def arm_and_seed(folder: str) -> tuple[str, int]:
    """Out of a run folder's name, its overrides: ``arm=no_std,seed=1`` is arm no_std with seed 1."""
    parts = folder.split(",")
    seeds = [p.removeprefix("seed=") for p in parts if p.startswith("seed=")]
    arm = ",".join(p.removeprefix("arm=") for p in parts if not p.startswith("seed="))
    return arm or BASELINE, int(seeds[0]) if seeds and seeds[0].isdecimal() else 0


def read_sweep(sweep: Path) -> list[Row]:
    """All iterations of all runs in a sweep's folder.

    Raises `ConfigurationError` if there is none yet, or if two are of one arm and seed.
    """
    rows = []
    folders: dict[tuple[str, int], str] = {}
    for path in sorted(sweep.glob("*/metrics.jsonl")):
        arm, seed = arm_and_seed(path.parent.name)
        other = folders.setdefault((arm, seed), path.parent.name)
        if other != path.parent.name:
            raise ConfigurationError(
                f"{sweep}: {other} and {path.parent.name} are both arm {arm} with seed {seed}; move one away"
            )
        for found in read_metrics(path):
            for seat in Seat:
                if f"{seat}/{MEASURES[0]}" in found:
                    values = tuple(_number(found.get(f"{seat}/{c}")) for c in COLUMNS)
                    rows.append(Row(str(seat), arm, seed, found["iteration"], values))
    if not rows:
        raise ConfigurationError(f"{sweep} holds no run with metrics yet: look for */metrics.jsonl")
    return rows


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def to_csv(rows: Sequence[Row]) -> str:
    """The rows as the text of ``ablation.csv``; what was not logged is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for row in rows:
        values = ("" if math.isnan(v) else f"{v:.6f}" for v in row.values)
        writer.writerow((row.seat, row.arm, row.seed, row.iteration, *values))
    return text.getvalue()


def curves(rows: Sequence[Row]) -> dict[tuple[str, str], Curves]:
    """The curves by (seat, arm), the arm called baseline first."""
    points: dict[tuple[str, str], dict[tuple[int, int], list[float]]] = {}
    for row in rows:
        values = [row.values[COLUMNS.index(m)] for m in MEASURES]
        points.setdefault((row.seat, row.arm), {})[row.seed, row.iteration] = values
    order = sorted(points, key=lambda k: (k[0], k[1] != BASELINE, k[1]))
    return {key: Curves.of(points[key], MEASURES) for key in order}


def summary(found: dict[tuple[str, str], Curves]) -> str:
    """A Markdown table: every arm's final quarter, and its distance to the arm called baseline, over the final
    quarter of what both have played."""
    header = ["seat", "arm", "seeds", "iterations", "reward", "reply tokens"]
    header += ["reward − baseline", "reply tokens − baseline"]
    lines = []
    for (seat, arm), curve in found.items():
        if not curve.iterations:
            continue
        final = last_quarter(curve.iterations)
        means = [curve.means(m, curve.seeds, final) for m in MEASURES]
        cells = [seat, label(arm), str(len(curve.seeds)), f"{final[0]}–{final[-1]}"]
        cells += ["{:.3f} ± {:.3f}".format(*mean_se(m)) for m in means]
        base = found.get((seat, BASELINE))
        for measure in MEASURES:
            gap = None if arm == BASELINE or base is None else compare(curve, base, measure)
            cells.append(f"{gap.gap:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})" if gap else "")
        lines.append(cells)
    return table(header, lines)


def plot(found: dict[tuple[str, str], Curves], path: Path) -> Path:
    """Draws both measures, one line an arm: the mean over seeds, with bands of one standard error."""
    seats = list(dict.fromkeys(seat for seat, _ in found))
    made = figure(11.5, 3.8 * len(seats) + 0.8)
    made.suptitle("One change at a time, from one warm start")
    grid = made.subplots(len(seats), len(MEASURES), squeeze=False)
    for y, seat in enumerate(seats):
        arms = [(arm, c) for (of, arm), c in found.items() if of == seat and c.iterations]
        for x, measure in enumerate(MEASURES):
            axes = grid[y][x]
            for i, (arm, curve) in enumerate(arms):
                values_SI = curve.values[measure]
                mean_I = values_SI.mean(axis=0)
                colour = "black" if arm == BASELINE else PALETTE[i % len(PALETTE)]
                axes.plot(
                    curve.iterations,
                    mean_I,
                    color=colour,
                    linestyle=_STYLES[i // len(PALETTE) % len(_STYLES)],
                    linewidth=2.2 if arm == BASELINE else 1.2,
                    label=f"{label(arm)} ({len(curve.seeds)} seeds)",
                )
                if len(curve.seeds) > 1:
                    se_I = values_SI.std(axis=0, ddof=1) / math.sqrt(len(curve.seeds))
                    band = mean_I - se_I, mean_I + se_I
                    axes.fill_between(
                        curve.iterations, *band, color=colour, alpha=0.12, linewidth=0
                    )
            axes.set_title(f"{seat}: {_WORDS[measure]}", fontsize=10)
            axes.set_xlabel("iteration")
            axes.grid(alpha=0.3)
        grid[y][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    made.supxlabel("Lines: mean over seeds; bands: ± one standard error", fontsize=8)
    return save(made, path)
