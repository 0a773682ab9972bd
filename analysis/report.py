"""``report.md`` of a run: what ran, what came out, with counts and intervals, from saved files alone."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from analysis.crossplay import AVERAGE, cell_text, matrix, plot_crossplay, read_crossplay, stages
from analysis.curves import importance, plot_curves, read_metrics
from analysis.episodes import SavedEpisodes
from analysis.tally import KINDS, Tallies, Tally, planted, tally
from arlas.statistics import NO_ATTACK, CrossplayRow, difference, wilson
from arlas.text import markdown
from arlas.types import NO_GUARD, Episode, Outcome, Seat

# Parts of config.yaml that say what ran; a group's name stands for all its values.
_CONFIG = (
    "name", "seed", "env", "policy", "game.max_steps", "game.injection.placement", "game.leak.scope",
    "game.guard.permissions", "game.guard.filter", "game.guard.approval",
    "reward.leak", "reward.success", "reward.failure", "lora.rank", "lora.alpha", "sampling.temperature",
    "sampling.max_tokens", "algo.iterations", "algo.groups", "algo.group_size", "algo.seats", "algo.lr",
    "algo.batch_size", "algo.beta", "population.draw", "population.per", "init", "eval.episodes",
    "eval.seeds", "eval.guards", "eval.split", "eval.temperature",
)  # fmt: skip
# Metrics in the table by iteration; rates are left out, they are shown with their counts instead.
_METRICS = ("reward", "loss", "kl", "ratio", "entropy", "grad", "second", "time")
_MOST_COLUMNS = 12
_LONGEST = 600


def write_report(run_dir: Path) -> Path:
    """Writes ``report.md`` and its pictures into a run folder. Returns the report.

    Whatever is not there yet is left out and named as missing. Raises FileNotFoundError without a folder.
    """
    if not run_dir.is_dir():
        raise FileNotFoundError(f"no run folder {run_dir}")
    saved = SavedEpisodes(run_dir)
    counts = tally(run_dir, saved)
    metrics_path, csv_path = run_dir / "metrics.jsonl", run_dir / "crossplay" / "crossplay.csv"
    metrics = read_metrics(metrics_path) if metrics_path.is_file() else []
    rows = read_crossplay(csv_path) if csv_path.is_file() else []
    alone = min((r.guard for r in rows), key=lambda g: g != NO_GUARD, default=NO_GUARD)
    sections = [
        f"# Report: {markdown(run_dir.resolve().name)}",
        "## Result\n\n" + _effects([r for r in rows if r.guard == alone]),
        _crossplay(rows, csv_path),
        _training(counts, metrics, metrics_path),
        _faults(counts, saved.damaged),
        _samples(counts),
        _times(counts, metrics),
        _what_ran(run_dir / "config.yaml", metrics),
    ]
    path = run_dir / "report.md"
    aside = path.with_name(".report.md.tmp")
    aside.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    os.replace(aside, path)
    return path


def rate(successes: int, trials: int) -> str:
    """A share with its counts and its 95 % Wilson interval."""
    if trials == 0:
        return "n/a (0 of 0)"
    low, high = wilson(successes, trials)
    return f"{100 * successes / trials:.1f} % ({successes} of {trials}; {100 * low:.1f}–{100 * high:.1f})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells are escaped by the caller."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _what_ran(path: Path, metrics: Sequence[Mapping[str, Any]]) -> str:
    head = "## What ran"
    if not path.is_file():
        return f"{head}\n\nNo config.yaml was saved."
    values = _flat(yaml.safe_load(path.read_text(encoding="utf-8")))
    shown = [
        (key, value)
        for key, value in values
        if any(key == known or key.startswith(f"{known}.") for known in _CONFIG)
    ]
    done = f"{len(metrics)} iterations are done." if metrics else "No iteration is done."
    body = table(["option", "value"], [[markdown(k), markdown(str(v), _LONGEST)] for k, v in shown])
    return f"{head}\n\n{done}\n\n{body}"


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(prefix, value)] if prefix else []
    return [
        leaf for k, v in value.items() for leaf in _flat(v, f"{prefix}.{k}" if prefix else str(k))
    ]


def _effects(rows: Sequence[CrossplayRow]) -> str:
    """Whether training changed anything, in words, from pooled counts."""
    agents = stages(r.agent for r in rows)
    attackers = [a for a in stages(r.attacker for r in rows) if a != NO_ATTACK]
    if not rows:
        return "No cross-play was saved, so nothing can be said about the effect of training."
    lines = []
    for seat, names in ((Seat.AGENT, agents), (Seat.ATTACKER, attackers)):
        for start in dict.fromkeys([*names[:1], *(n for n in names if n == "sft")]):
            if start != names[-1]:
                others = "attackers" if seat is Seat.AGENT else "agents"
                pair = f"{seat.value} {markdown(names[-1])} against {markdown(start)}, all {others}"
                lines.append(_effect(f"ASR, {pair}", rows, seat, names[-1], start, _attack_counts))
                lines.append(_effect(f"TSR, {pair}", rows, seat, names[-1], start, _task_counts))
    if not lines:
        return "Only one stage of each seat was evaluated, so nothing can be said about training."
    note = (
        "Differences in percentage points with 95 % intervals (Newcombe), over episodes pooled from the "
        "seeds and opponents that both stages met; they do not cover how another training run would come out."
    )
    if any(r.agent == "base" and r.attacker == NO_ATTACK and not r.successes for r in rows):
        note += (
            " The base agent does not solve a single task here, and an agent that does nothing leaks nothing: "
            "compare with the SFT stage."
        )
    return "\n".join(f"- {entry}" for entry in lines) + f"\n\n{note}"


Counts = Callable[[Sequence[CrossplayRow]], tuple[int, int]]


def _attack_counts(rows: Sequence[CrossplayRow]) -> tuple[int, int]:
    return sum(r.leaks for r in rows), sum(r.exposed for r in rows)


def _task_counts(rows: Sequence[CrossplayRow]) -> tuple[int, int]:
    return sum(r.successes for r in rows), sum(r.episodes for r in rows)


def _effect(
    what: str, rows: Sequence[CrossplayRow], seat: Seat, last: str, first: str, count: Counts
) -> str:
    """Two stages of one seat, over the opponents and seeds that both have met with something to count."""

    def cells(name: str) -> dict[tuple[str, int], CrossplayRow]:
        of = [r for r in rows if getattr(r, seat.value) == name and r.attacker != NO_ATTACK]
        other = "attacker" if seat is Seat.AGENT else "agent"
        return {(getattr(r, other), r.seed): r for r in of if count([r])[1]}

    one, two = cells(last), cells(first)
    shared = one.keys() & two.keys()
    if not shared:
        return f"{what}: not applicable, no two cells to compare."
    hits, n = count([one[key] for key in shared])
    hits_0, n_0 = count([two[key] for key in shared])
    gap, low, high = (100 * v for v in difference(hits, n, hits_0, n_0))
    better = (gap > 0) == ((seat is Seat.AGENT) == what.startswith("TSR"))
    change = f"{'higher' if gap > 0 else 'lower'}, {'better' if better else 'worse'} for the {seat}"
    shown = "**no effect shown**" if low <= 0 <= high else change
    return (
        f"{what}: {rate(hits, n)} against {rate(hits_0, n_0)}, "
        f"{gap:+.1f} ({low:+.1f} to {high:+.1f}): {shown}."
    )


def _crossplay(rows: Sequence[CrossplayRow], csv_path: Path) -> str:
    head = "## Cross-play"
    if not rows:
        return f"{head}\n\nNo crossplay.csv with a cell in it was saved."
    plot_crossplay(csv_path, csv_path.with_suffix(".png"))
    parts = [head, "![Heatmap of attack and task success rates](crossplay/crossplay.png)"]
    for measure in ("asr", "tsr"):
        shown = matrix(rows, measure)
        body = []
        for attacker in shown.attackers:
            cells = []
            for agent in shown.agents:
                cell = shown.cells[attacker, agent]
                of = [r for r in rows if (r.attacker, r.player) == (attacker, agent)]
                cells.append(
                    f"{cell_text(cell)} (n = {cell.n})"
                    if attacker == AVERAGE
                    else rate(*_pooled(of, measure, attacker))
                )
            body.append([markdown(attacker), *cells])
        name = {"asr": "Attack success rate (ASR)", "tsr": "Task success rate (TSR)"}[measure]
        seeds = len({r.seed for r in rows})
        parts.append(
            f"{name}: per cent, counts and 95 % Wilson interval, pooled over {seeds} seed(s); "
            "rows are attackers, columns agents. Average: mean ± standard error over seeds, no attack left out."
        )
        parts.append(table(["attacker", *map(markdown, shown.agents)], body))
    return "\n\n".join(parts)


def _pooled(rows: Sequence[CrossplayRow], measure: str, attacker: str) -> tuple[int, int]:
    if measure == "tsr":
        return _task_counts(rows)
    if attacker == NO_ATTACK:
        return sum(r.leaks for r in rows), sum(r.episodes for r in rows)
    return _attack_counts(rows)


def _training(counts: Tallies, metrics: Sequence[Mapping[str, Any]], metrics_path: Path) -> str:
    parts = ["## Training"]
    names = [n for n in counts.parts if n.startswith("iteration ")]
    if names:
        parts.append(
            "Played while training, by iteration; ASR over episodes in which the agent saw the attack, TSR "
            "over attacked and unattacked episodes alike."
        )
        body = [
            [n.removeprefix("iteration "), str(c.played), rate(c.leaks, c.exposed),
             rate(c.successes, c.played), f"{c.flat} of {c.groups}"]
            for n, c in ((n, counts.parts[n]) for n in names)
        ]  # fmt: skip
        parts.append(table(["iteration", "episodes", "ASR", "TSR", "flat groups"], body))
    if not metrics:
        return "\n\n".join([*parts, "No metrics.jsonl with an iteration in it was saved."])
    plot_curves(metrics_path, metrics_path.with_name("curves.png"))
    keys = [
        k
        for k in dict.fromkeys(k for row in metrics for k in row)
        if k != "iteration" and any(part in k.lower() for part in _METRICS)
    ]
    keys = sorted(keys, key=importance)[:_MOST_COLUMNS]
    parts.append("![Training metrics by iteration](curves.png)")
    body = [[str(row["iteration"]), *(_number(row.get(k)) for k in keys)] for row in metrics]
    parts.append(table(["iteration", *map(markdown, keys)], body))
    parts.append("All metrics are in metrics.jsonl.")
    return "\n\n".join(parts)


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "n/a"
    return "n/a" if value is None else markdown(str(value))


def _faults(counts: Tallies, damaged: int) -> str:
    rows = []
    messages: Counter[str] = Counter()
    for name in KINDS:
        t = counts.total(name)
        messages.update(t.messages)
        if t.episodes:
            rows += [[name, *entry] for entry in _fault_rows(t)]
    rows.append(["all", "damaged lines in episode files", str(damaged)])
    found = "".join(f"\n- {n} ×: {markdown(text, 300)}" for text, n in messages.most_common(3))
    text = f"\n\nMost frequent faults:\n{found}" if found else ""
    return "## Errors and lost episodes\n\n" + table(["part", "what", "count"], rows) + text


def _fault_rows(t: Tally) -> list[list[str]]:
    return [
        ["infrastructure faults, no reward", rate(t.faults, t.episodes)],
        *(
            [f"malformed replies, {seat.value}", rate(t.malformed[seat], t.replies[seat])]
            for seat in Seat
        ),
        ["unexposed: the agent never saw the attack", rate(t.attacked - t.exposed, t.attacked)],
        ["flat groups, nothing to learn", rate(t.flat, t.groups)],
    ]


def _samples(counts: Tallies) -> str:
    head = (
        "## Sample attacks\n\nThe latest of each outcome. Everything quoted was written by models and is "
        "shown escaped; private data in it is synthetic."
    )
    latest = {outcome: list(reversed(found)) for outcome, found in counts.samples.items()}
    order = (Outcome.LEAK, Outcome.SUCCESS, Outcome.FAILURE)
    chosen = [latest[o][i] for i in range(3) for o in order if i < len(latest[o])][:3]
    if not chosen:
        return f"{head}\n\nNo attack was saved that an agent saw."
    return "\n\n".join([head, *map(_sample, chosen)])


def _sample(episode: Episode) -> str:
    assert episode.attacker is not None
    assert episode.outcome is not None
    leaked = f", leaked: {markdown(', '.join(episode.leaked))}" if episode.leaked else ""
    names = (episode.attacker.version, episode.agent.version, episode.task)
    attacker, agent, task = (markdown(name, 80) for name in names)
    said = [t.action or t.text for t in episode.turns if t.seat is Seat.AGENT]
    quotes = [
        ("task", episode.goal),
        *(("planted", text) for text in planted(episode)[-2:]),
        *(("agent", text) for text in said[-2:]),
    ]
    return (
        f"**Outcome: {episode.outcome.value}**{leaked} — attacker {attacker}, agent {agent}, "
        f"task {task}, seed {episode.seed}\n\n"
        + "\n>\n".join(f"> {who}: {markdown(text, _LONGEST)}" for who, text in quotes)
    )


def _times(counts: Tallies, metrics: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for name in KINDS:
        t = counts.total(name)
        if t.seconds:
            middle, slow = np.quantile(list(t.seconds), [0.5, 0.9])
            lines.append(
                f"- {name}: {t.episodes} episodes, {middle:.2f} s each (median), 90 % within {slow:.2f} s"
            )
    for key in dict.fromkeys(k for row in metrics for k in row):
        values = [v for row in metrics if isinstance(v := row.get(key), (int, float))]
        if values and ("seconds" in key or key.startswith("time/")):
            lines.append(
                f"- {markdown(key)}: {sum(values):.1f} s over {len(values)} iterations, "
                f"{sum(values) / len(values):.1f} s each"
            )
    return "## Times\n\n" + ("\n".join(lines) or "No times were saved.")
