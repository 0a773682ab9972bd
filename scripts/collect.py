"""Lets teachers play for demonstrations: ``python scripts/collect.py experiment=… name=…``."""

from __future__ import annotations

import json
from pathlib import Path

import hydra
from _entry import entry
from omegaconf import DictConfig

from arlas.build import register, typed
from arlas.collect import collect, filtered
from arlas.types import Seat

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@entry
def main(config: DictConfig) -> None:
    """Writes ``demos/`` in the run folder and prints what each seat kept and dropped."""
    run = typed(config)
    out = Path(run.run_dir) / "demos"
    episodes = collect(run, out)
    for seat in Seat:
        print(f"{seat}: {json.dumps(filtered(episodes, seat)[1])}")
    print(out)


if __name__ == "__main__":
    main()
