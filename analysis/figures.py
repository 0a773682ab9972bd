"""Small helpers of the plots: no display, no global state, hostile names as plain text."""

from __future__ import annotations

import os
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from arlas.text import line

# Okabe and Ito's colours, distinguishable with any colour vision.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
PALETTE = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")


def figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def label(text: str, limit: int = 40) -> str:
    """A name for a plot: one line, and no dollar sign starts a formula."""
    return line(text, limit).replace("$", r"\$")


def save(made: Figure, path: Path) -> Path:
    """Writes a PNG aside and renames it. Returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.tmp")
    made.savefig(aside, format="png", dpi=130)
    os.replace(aside, path)
    return path
