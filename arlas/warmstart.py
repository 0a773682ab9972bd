"""The warm start of both seats from demonstrations (ARLAS, section 3.2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from arlas.build import model_name
from arlas.checkpoint import written_aside
from arlas.collect import filtered
from arlas.config import InitConfig, RunConfig
from arlas.learning.learner import Learner
from arlas.learning.sft import train_sft
from arlas.types import ConfigurationError, Episode, Seat


def warm_start(config: RunConfig, episodes: Sequence[Episode], out: Path) -> InitConfig:
    """Trains each seat on its won demonstrations; adapters lie in ``out/agent`` and ``out/attacker``.

    A seat whose adapter is already there is not trained again. Raises `ConfigurationError` if a seat won no
    episode.
    """
    kept = {seat: filtered(episodes, seat) for seat in config.algo.seats}
    for seat, (won, counts) in kept.items():
        if not won:
            raise ConfigurationError(f"no demonstration was won by the {seat}: {counts}")
    missing = [seat for seat in config.algo.seats if not (out / seat).is_dir()]
    if missing:
        learner = Learner(
            model=model_name(config),
            lora=config.lora,
            algo=config.algo,
            init=InitConfig(),
            temperature=config.sampling.temperature,
            seats=tuple(missing),
            seed=config.seed,
        )
        for seat in missing:
            _train(config, learner, seat, *kept[seat], out)
    return InitConfig(**{seat.value: str(out / seat) for seat in config.algo.seats})


def _train(
    config: RunConfig,
    learner: Learner,
    seat: Seat,
    episodes: Sequence[Episode],
    counts: dict[str, int],
    out: Path,
) -> None:
    with tqdm(desc=f"imitation, {seat}", unit="step", disable=not config.logger.progress) as bar:

        def progress(done: int, total: int, metrics: dict[str, float]) -> None:
            bar.total = total
            bar.set_postfix(loss=f"{metrics['loss']:.3f}", refresh=False)
            bar.update(done - bar.n)

        metrics = train_sft(
            learner, seat, [e.segments[seat] for e in episodes], config.sft, progress
        )
    with written_aside(out / seat) as aside:
        learner.save_adapter(seat, aside)
        (aside / "sft.json").write_text(
            json.dumps({"demonstrations": counts, "metrics": metrics}), "utf-8"
        )
