"""Whether two configs, as plain containers, describe the same run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from arlas.config import AlgoConfig
from arlas.shaping import ShapingConfig
from arlas.types import Layer

# Keys that may change between two starts of one run.
_FREE = (
    *("run_dir", "resume", "threads", "logger", "objective", "name"),
    *("collect", "sft", "rephrase", "nearpolicy", "eval"),
)
# Switches of `algo` that came later. Switched off they change nothing, so runs from before keep their digest.
_LATER = (
    *("baseline", "baseline_decay", "baseline_per_task", "refill"),
    *("importance_level", "importance_bound"),
)


def fingerprint(config: dict[str, Any]) -> str:
    """A digest of everything in a config (as plain containers) that decides the result of a run."""
    kept = {k: v for k, v in _as_before(config).items() if k not in _FREE}
    if isinstance(kept.get("algo"), dict):  # a run may be continued for longer
        kept["algo"] = {k: v for k, v in kept["algo"].items() if k != "iterations"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()


def _as_before(config: dict[str, Any]) -> dict[str, Any]:
    """The config without later switches that are off."""
    off = dataclasses.asdict(AlgoConfig())
    kept = {
        k: v
        for k, v in config.items()
        if k != "shaping" or v != dataclasses.asdict(ShapingConfig())
    }
    if isinstance(kept.get("algo"), dict):
        algo = kept["algo"].items()
        kept["algo"] = {k: v for k, v in algo if k not in _LATER or v != off[k]}
    if isinstance(kept.get("game"), dict):
        game = kept["game"]
        kept["game"] = {k: v for k, v in game.items() if k != "guard" or any(map(v.get, Layer))}
    return kept


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys whose values differ between two configs (as plain containers)."""
    found: list[str] = []
    if not prefix:
        off = {"shaping": dataclasses.asdict(ShapingConfig())}
        old, new = off | _as_before(old), off | _as_before(new)
    for key in sorted(set(old) | set(new)):
        a, b, name = old.get(key), new.get(key), f"{prefix}{key}"
        if name in _FREE or name == "algo.iterations":
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{name}.")
        elif a != b:
            found.append(f"{name}: {a!r} → {b!r}")
    return found
