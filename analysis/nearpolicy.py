"""How near demonstrations are to the policy: a table and a picture out of ``RUN_DIR/nearpolicy/``.

Perplexities are those of the base model at temperature 1, token-weighted (all tokens of a set in one) and
episode-weighted (the mean over episodes of the mean over tokens); the ratio is to the reference's own rollouts on the tasks that
both have. Intervals are 95 % percentile bootstraps over tasks. A group has variance if its rewards are not all equal;
larger groups have it more often, so it is reported with G. Where all tasks agree, its interval is a point, however few they are.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.episodes import SavedEpisodes, read_json_lines
from analysis.figures import BLUE, GREY, ORANGE, figure, label, save
from analysis.report import table as markdown_table
from arlas.statistics import cluster_bootstrap
from arlas.text import markdown

_SEATS = ("agent", "attacker")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Nearness:
    """One seat of one set of episodes; None where nothing was counted. Shares and rates are in [0, 1]."""

    name: str
    kind: str
    seat: str
    tasks: int
    episodes: int
    tokens: int
    perplexity: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    perplexity_episodes: float | None = None
    ratio_episodes: float | None = None
    ratio_episodes_low: float | None = None
    ratio_episodes_high: float | None = None
    reasoning_tokens: float | None = None
    """Mean over replies."""
    repeated: float | None = None
    """Share of n-grams of words that the same reasoning has held before."""
    fillers: float | None = None
    """Filler phrases a hundred words."""
    groups: int = 0
    group_size: float | None = None
    """Mean number of episodes in a group without infrastructure faults."""
    varied: float | None = None
    """Share of groups with different rewards."""
    varied_low: float | None = None
    varied_high: float | None = None


def nearness(
    name: str, kind: str, seat: str, rows: Sequence[Row], reference: Sequence[Row]
) -> Nearness:
    """The measures of one seat's rows of a set; ``reference`` are the same seat's rows of the reference."""
    own = [r for r in rows if r["seat"] == seat and r["tokens"]]
    other = [r for r in reference if r["seat"] == seat and r["tokens"]]
    total = {k: sum(r[k] for r in own) for k in ("tokens", "replies", "words", "ngrams")}
    found: dict[str, Any] = {}
    if own:
        nll = [-r["logprob"] / r["tokens"] for r in own]
        found["perplexity"] = _exp(-sum(r["logprob"] for r in own) / total["tokens"])
        found["perplexity_episodes"] = _exp(sum(nll) / len(nll))
    for key, weigh in (("ratio", _by_token), ("ratio_episodes", _by_episode)):
        interval = _ratio(own, other, weigh)
        if interval is not None:
            found |= dict(zip((key, f"{key}_low", f"{key}_high"), interval, strict=True))
    means = {
        "reasoning_tokens": ("reasoning_tokens", "replies", 1.0),
        "repeated": ("repeated", "ngrams", 1.0),
        "fillers": ("fillers", "words", 100.0),
    }
    for key, (over, under, scale) in means.items():
        if total[under]:
            found[key] = scale * sum(r[over] for r in own) / total[under]
    if kind == "rollouts":
        found |= variance(own)
    return Nearness(
        name, kind, seat, len({r["task"] for r in own}), len(own), total["tokens"], **found
    )


def variance(rows: Sequence[Row]) -> dict[str, Any]:
    """How many groups (task and seed) have different rewards, among those with two episodes or more."""
    rewards: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        if row["reward"] is not None:
            rewards[row["task"], row["seed"]].append(row["reward"])
    groups = {key: values for key, values in rewards.items() if len(values) > 1}
    if not groups:
        return {}
    by_task: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (task, _), values in groups.items():
        by_task[task][0] += len(set(values)) > 1
        by_task[task][1] += 1
    share, low, high = cluster_bootstrap(list(by_task.values()), lambda t: t[:, 0] / t[:, 1])
    return {
        "groups": len(groups),
        "group_size": sum(map(len, groups.values())) / len(groups),
        "varied": share,
        "varied_low": low,
        "varied_high": high,
    }


def _by_token(row: Row) -> tuple[float, float]:
    return -row["logprob"], row["tokens"]


def _by_episode(row: Row) -> tuple[float, float]:
    return -row["logprob"] / row["tokens"], 1.0


def _ratio(
    own: Sequence[Row], other: Sequence[Row], weigh: Callable[[Row], tuple[float, float]]
) -> tuple[float, float, float] | None:
    """How many times the reference's perplexity, with its interval; None without a task in common."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for at, rows in ((0, own), (2, other)):
        for row in rows:
            loss, weight = weigh(row)
            sums[row["task"]][at] += loss
            sums[row["task"]][at + 1] += weight
    common = [values for values in sums.values() if values[1] and values[3]]
    if not common:
        return None

    def statistic(t: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(t[:, 0] / t[:, 1] - t[:, 2] / t[:, 3]))

    return cluster_bootstrap(common, statistic)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def table(folder: Path) -> list[Nearness]:
    """All sets and seats of a measurement. Raises OSError or ValueError if it is not whole."""
    index = json.loads((folder / "nearpolicy.json").read_text("utf-8"))
    sets = {}
    for s in index["sets"]:
        rows, damaged = read_json_lines(folder / s["scores"])
        if damaged:
            raise ValueError(
                f"{folder / s['scores']} is damaged; delete it and run scripts/nearpolicy.py again"
            )
        sets[s["name"], s["kind"]] = rows
    reference = sets[index["reference"], "rollouts"]
    return [
        nearness(name, kind, seat, rows, reference)
        for seat in _SEATS
        for (name, kind), rows in sets.items()
    ]


def training_groups(run_dir: Path) -> list[tuple[int, str, dict[str, Any]]]:
    """`variance` of a run's own training groups as (iteration, seat, measures)."""
    rows: dict[tuple[int, str], list[Row]] = defaultdict(list)
    saved = SavedEpisodes(run_dir / "iterations")
    for path, episode in saved:
        if episode.ok and episode.learner is not None and path.parent.name.isdecimal():
            reward = episode.rewards.get(episode.learner)
            rows[int(path.parent.name), episode.learner.value].append(
                {"task": episode.task, "seed": episode.seed, "reward": reward}
            )
    return [(i, seat, variance(rows[i, seat])) for i, seat in sorted(rows)]


def write_nearness(folder: Path) -> tuple[str, list[Path]]:
    """Writes ``nearpolicy.csv``, ``.md`` and ``.png`` beside the scores; returns the Markdown and the paths."""
    rows = table(folder)
    paths = [folder / f"nearpolicy.{end}" for end in ("csv", "md", "png")]
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(Nearness)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(row).items()}
        )
    paths[0].write_text(text.getvalue(), "utf-8")
    words = as_markdown(rows, training_groups(folder.parent))
    paths[1].write_text(words, "utf-8")
    plot(rows, paths[2])
    return words, paths


def as_markdown(
    rows: Iterable[Nearness], trained: Sequence[tuple[int, str, Mapping[str, Any]]] = ()
) -> str:
    """The table in words, with the groups of training below it."""
    head: tuple[str, ...] = (
        "set",
        "seat",
        "episodes",
        "perplexity",
        "× reference, by token",
        "× reference, by episode",
        "reasoning tokens",
        "repeated n-grams",
        "fillers / 100 words",
        "groups with variance",
    )
    cells = [
        [
            f"{markdown(r.name)} ({r.kind})",
            r.seat,
            f"{r.episodes} of {r.tasks} tasks",
            _number(r.perplexity),
            _interval(r.ratio, r.ratio_low, r.ratio_high),
            _interval(r.ratio_episodes, r.ratio_episodes_low, r.ratio_episodes_high),
            _number(r.reasoning_tokens),
            _percent(r.repeated),
            _number(r.fillers),
            _varied(asdict(r)),
        ]
        for r in rows
    ]
    parts = [markdown_table(head, cells)]
    if trained:
        head = ("iteration", "seat", "training groups with variance")
        parts.append(markdown_table(head, [[str(i), s, _varied(f)] for i, s, f in trained]))
    return "\n\n".join(parts) + "\n"


def _varied(found: Mapping[str, Any]) -> str:
    if found.get("varied") is None:
        return "–"
    shares = (_percent(found[k]) for k in ("varied", "varied_low", "varied_high"))
    share, low, high = shares
    return f"{share} [{low}, {high}] of {found['groups']}, G = {found['group_size']:.3g}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    if value is None or low is None or high is None:
        return "–"
    return f"{value:.3g} [{low:.3g}, {high:.3g}]"


def plot(rows: Sequence[Nearness], path: Path) -> Path:
    """Left the perplexity ratios with their intervals, right the groups with variance."""
    made = figure(10.0, 0.8 + 0.42 * max(2, len(rows)))
    left, right = made.subplots(1, 2, sharey=True)
    for y, row in enumerate(rows):
        color = BLUE if row.seat == "agent" else ORANGE
        if row.ratio is not None and row.ratio_low is not None and row.ratio_high is not None:
            _point(left, row.ratio, row.ratio_low, row.ratio_high, y, color)
        if row.varied is not None and row.varied_low is not None and row.varied_high is not None:
            _point(right, row.varied, row.varied_low, row.varied_high, y, color)
    left.axvline(1.0, color=GREY, linewidth=0.8)
    left.set_xscale("log")
    left.xaxis.set_major_formatter("{x:g}")
    left.xaxis.set_minor_formatter("{x:.2g}")
    left.set_xlabel("perplexity under the base ÷ that of the reference's rollouts")
    right.set_xlim(-0.02, 1.02)
    right.set_xlabel("share of groups with different rewards")
    left.set_yticks(range(len(rows)), [f"{label(r.name)}, {r.seat}" for r in rows])
    left.invert_yaxis()
    return save(made, path)


def _point(axes: Any, value: float, low: float, high: float, y: int, color: str) -> None:
    axes.plot([low, high], [y, y], color=color, linewidth=2)
    axes.plot([value], [y], "o", color=color)
