"""Saved episodes and other JSON lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arlas.types import Episode

log = logging.getLogger(__name__)


def read_json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a JSON-lines file, and how many lines could not be read.

    A process killed while it writes leaves half a line, at the end or, after a resume, in the middle.
    """
    rows: list[dict[str, Any]] = []
    damaged = 0
    for text in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            row = json.loads(text)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        elif text.strip():
            damaged += 1
    if damaged:
        log.warning("%s: %d damaged lines left out", path, damaged)
    return rows, damaged


def episode_files(folder: Path) -> list[Path]:
    """Every ``episodes*.jsonl`` under a folder, in order; unfinished (hidden) folders are left out."""
    found = folder.glob("**/episodes*.jsonl")
    return sorted(
        p for p in found if not any(s.startswith(".") for s in p.relative_to(folder).parts)
    )


@dataclass
class SavedEpisodes:
    """Iterates over ``(file, episode)`` of a run folder, one line in memory at a time.

    ``damaged`` counts the lines left out by the last iteration.
    """

    folder: Path
    damaged: int = 0

    def __iter__(self) -> Iterator[tuple[Path, Episode]]:
        self.damaged = 0
        for path in episode_files(self.folder):
            before = self.damaged
            with path.open(encoding="utf-8", errors="replace") as file:
                for text in file:
                    if not text.strip():
                        continue
                    try:
                        episode = Episode.from_json(text)
                    except (ValueError, KeyError, TypeError, AttributeError):
                        self.damaged += 1
                    else:
                        yield path, episode
            if self.damaged > before:
                log.warning("%s: %d damaged lines left out", path, self.damaged - before)
