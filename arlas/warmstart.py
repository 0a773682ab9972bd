"""The warm start of both seats from demonstrations (ARLAS, section 3.2)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from arlas.build import model_name
from arlas.checkpoint import written_aside
from arlas.collect import filtered
from arlas.config import AlgoConfig, InitConfig, RunConfig
from arlas.demonstrations import SFTConfig
from arlas.fingerprint import fingerprint
from arlas.learning.learner import Learner
from arlas.learning.sft import train_sft
from arlas.types import ConfigurationError, Episode, Seat

_LATER = ("eval_every", "patience", "packing", "demos")
"""Switches that came later: switched off they change nothing. Of ``demos`` the episodes themselves count."""
_OF_THE_LEARNER = ("max_grad_norm", "weight_decay", "dtype", "mixed_precision")
"""What imitation takes from ``algo``."""


def made(config: RunConfig, out: Path) -> bool:
    """Whether the adapters of all seats that learn are there."""
    return all((out / seat / "sft.json").is_file() for seat in config.algo.seats)


def warm_start(config: RunConfig, episodes: Sequence[Episode], out: Path) -> InitConfig:
    """Trains each seat on its won demonstrations; adapters lie in ``out/agent`` and ``out/attacker``.

    A seat whose adapter is already there is not trained again; one that was killed while it trained starts over.
    Beside each adapter lie ``sft.json`` with counts and metrics and ``curve.jsonl`` with a row for every step. Raises `ConfigurationError` if a seat won no
    episode, or if an adapter that is there was made with other settings or demonstrations.
    """
    kept = {seat: filtered(episodes, seat) for seat in config.algo.seats}
    for seat, (won, counts) in kept.items():
        if not won:
            raise ConfigurationError(f"no demonstration was won by the {seat}: {counts}")
    keys = {seat: _key(config, won) for seat, (won, _) in kept.items()}
    missing = [seat for seat in config.algo.seats if not (out / seat).is_dir()]
    for seat in config.algo.seats:
        if seat not in missing:
            _check(out / seat, keys[seat])
    if missing:
        learner = Learner(
            model=model_name(config),
            lora=config.lora,
            algo=config.algo,
            init=InitConfig(),
            temperature=config.sampling.temperature,
            seats=tuple(missing),
            seed=config.seed,
            device=config.algo.device,
            dtype=config.algo.dtype,
        )
        for seat in missing:
            _train(config, learner, seat, *kept[seat], out, keys[seat])
    return InitConfig(**{seat.value: str(out / seat) for seat in config.algo.seats})


def _key(config: RunConfig, episodes: Sequence[Episode]) -> str:
    """A digest of all that decides an adapter."""
    shown = [e.to_json() for e in episodes]
    off = dataclasses.asdict(SFTConfig())
    sft = dataclasses.asdict(dataclasses.replace(config.sft, demos=None))
    algo, plain = dataclasses.asdict(config.algo), dataclasses.asdict(AlgoConfig())
    decides = {
        "warm_start": {k: v for k, v in sft.items() if k not in _LATER or v != off[k]},
        "lora": dataclasses.asdict(config.lora),
        "model": model_name(config),
        "seed": config.seed,
        "demonstrations": hashlib.sha256("\n".join(shown).encode()).hexdigest(),
        # only where they are not the default, so that adapters of before keep their keys
        **{k: algo[k] for k in _OF_THE_LEARNER if algo[k] != plain[k]},
    }
    return fingerprint(decides)


def _check(folder: Path, key: str) -> None:
    try:
        found = json.loads((folder / "sft.json").read_text("utf-8"))["key"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{folder} holds no adapter of a warm start ({error})") from error
    if found != key:
        raise ConfigurationError(
            f"{folder} was made with other settings or demonstrations; delete it to train it again"
        )


def _train(
    config: RunConfig,
    learner: Learner,
    seat: Seat,
    episodes: Sequence[Episode],
    counts: dict[str, int],
    out: Path,
    key: str,
) -> None:
    curve: list[dict[str, float]] = []
    with tqdm(desc=f"imitation, {seat}", unit="step", disable=not config.logger.progress) as bar:

        def progress(done: int, total: int, metrics: dict[str, float]) -> None:
            bar.total = total
            bar.set_postfix(loss=f"{metrics['loss']:.3f}", refresh=False)
            bar.update(done - bar.n)

        metrics = train_sft(
            learner,
            seat,
            [e.segments[seat] for e in episodes],
            config.sft,
            progress,
            curve.append,
        )
    with written_aside(out / seat) as aside:
        learner.save_adapter(seat, aside)
        (aside / "curve.jsonl").write_text("".join(json.dumps(r) + "\n" for r in curve), "utf-8")
        (aside / "sft.json").write_text(
            json.dumps({"demonstrations": counts, "metrics": metrics, "key": key}), "utf-8"
        )
