"""Training curves out of ``metrics.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.episodes import read_json_lines
from analysis.figures import BLUE, ORANGE, PALETTE, figure, label, save

_SEATS = {"attacker": ORANGE, "agent": BLUE}
_MOST_PANELS = 24
_FIRST = (
    "reward_mean", "asr", "tsr", "loss", "kl", "entropy", "groups_flat", "malformed", "ratio_max", "ess",
    "clip_share", "grad_norm", "time", "exposed", "leaks", "successes",
)  # fmt: skip
"""What is drawn first, where a picture or a table cannot hold everything."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a ``metrics.jsonl`` in the order of iterations; of two rows of one, the later."""
    rows, _ = read_json_lines(path)
    by_iteration = {row["iteration"]: row for row in rows if isinstance(row.get("iteration"), int)}
    return [by_iteration[i] for i in sorted(by_iteration)]


def importance(key: str) -> int:
    """The rank of a metric among those that are shown first; ties keep the order of the file."""
    return next((i for i, part in enumerate(_FIRST) if part in key), len(_FIRST))


def panels(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Which keys are drawn together: panel → line → key.

    A key with a part ``attacker`` or ``agent`` shares a panel with the other seat's key of the same name;
    every other number has a panel of its own.
    """
    found: dict[str, dict[str, str]] = {}
    for key in dict.fromkeys(k for row in rows for k in row):
        numbers = [row[key] for row in rows if _number(row.get(key))]
        if key == "iteration" or not numbers:
            continue
        parts = key.split("/")
        seat = next((p for p in parts if p in _SEATS), "")
        panel = "/".join(p for p in parts if p != seat) if seat else key
        found.setdefault(panel or key, {})[seat] = key
    return found


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def plot_curves(metrics_path: Path, png_path: Path) -> Path:
    """Draws every metric against the iteration, as small multiples. Raises ValueError without rows.

    At most 24 panels are drawn, the most telling first; the title says how many were left out.
    """
    rows = read_metrics(metrics_path)
    every = panels(rows)
    if not every:
        raise ValueError(f"{metrics_path} holds no metrics yet")
    shown = sorted(every.items(), key=lambda panel: importance(panel[0]))[:_MOST_PANELS]
    columns = min(4, len(shown))
    lines = math.ceil(len(shown) / columns)
    made = figure(3.3 * columns + 0.5, 2.2 * lines + 0.9)
    left_out = f"; {len(every) - len(shown)} more in the file" if len(every) > len(shown) else ""
    made.suptitle(f"Training metrics by iteration{left_out}")
    grid = made.subplots(lines, columns, squeeze=False).flat
    for axes, (panel, keys) in zip(grid, shown, strict=False):
        for seat, key in keys.items():
            points = [(r["iteration"], r[key]) for r in rows if _number(r.get(key))]
            axes.plot(
                *zip(*points, strict=True),
                marker=".",
                label=seat or None,
                color=_SEATS.get(seat, PALETTE[2]),
            )
        axes.set_title(label(panel), fontsize=9)
        axes.tick_params(labelsize=7)
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        if any(keys):
            axes.legend(fontsize=7)
    for axes in list(made.axes)[len(shown) :]:
        axes.set_visible(False)
    made.supxlabel("iteration", fontsize=9)
    return save(made, png_path)
