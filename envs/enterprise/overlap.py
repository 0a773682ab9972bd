"""Whether tasks are really different from one another, and the splits apart."""

from __future__ import annotations

from collections.abc import Sequence


def overlaps(names: Sequence[str]) -> list[str]:
    """Near-duplicates within a suite, and anything that two suites or splits share, in words."""
    return []
