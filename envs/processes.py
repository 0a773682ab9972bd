"""Process families: everything that a process has started, wherever it went."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOKEN = "ARLAS_WORKER_TOKEN"
"""The environment variable by which orphans are still known as family."""


def family(root: int, token: str) -> list[int]:
    """Living processes that descend from ``root`` or carry ``token`` in their environment, root included.

    Chromium opens a session of its own, so a process group does not find it.
    """
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
            state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
            if state in "ZX":
                continue
            parents[int(entry)] = int(parent)
            if f"{TOKEN}={token}".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                marked.add(int(entry))
        except (OSError, ValueError):
            continue
    found = ({root} & parents.keys()) | marked
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found)
        found |= more


def kill_family(root: int, token: str, spare: int | None = None) -> None:
    """Kills a process family until none of it is left (at most a second). ``spare`` is left alive."""
    for _ in range(50):
        pids = [pid for pid in family(root, token) if pid != spare]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


@contextlib.contextmanager
def without_main_module() -> Iterator[None]:
    """Hides the running script: a spawned worker would import it again, and all that it imports."""
    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {
        k: main.__dict__.pop(k) for k in ("__file__", "__spec__") if k in main.__dict__
    }
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(hidden)
