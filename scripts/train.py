"""Trains attacker and agent against each other: ``python scripts/train.py experiment=…``."""

from __future__ import annotations

import hydra
from _entry import entry
from omegaconf import DictConfig

from arlas.build import register, typed
from arlas.train import train

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@entry
def main(config: DictConfig) -> float:
    """Returns the metric that ``objective`` names, which a Hydra sweep optimizes."""
    return train(typed(config))


if __name__ == "__main__":
    main()
