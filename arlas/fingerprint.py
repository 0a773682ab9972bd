"""Whether two configs, as plain containers, describe the same run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

# Keys that may change between two starts of one run.
_FREE = ("run_dir", "resume", "threads", "logger", "collect", "sft", "eval", "objective", "name")


def fingerprint(config: dict[str, Any]) -> str:
    """A digest of everything in a config (as plain containers) that decides the result of a run."""
    kept = {k: v for k, v in config.items() if k not in _FREE}
    if isinstance(kept.get("algo"), dict):  # a run may be continued for longer
        kept["algo"] = {k: v for k, v in kept["algo"].items() if k != "iterations"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys whose values differ between two configs (as plain containers)."""
    found: list[str] = []
    for key in sorted(set(old) | set(new)):
        a, b, name = old.get(key), new.get(key), f"{prefix}{key}"
        if name in _FREE or name == "algo.iterations":
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{name}.")
        elif a != b:
            found.append(f"{name}: {a!r} → {b!r}")
    return found
