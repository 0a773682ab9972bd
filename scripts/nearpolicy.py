"""How near demonstrations are to the policy: ``python scripts/nearpolicy.py experiment=… name=… nearpolicy.demos=[demos,rephrased]``."""

from __future__ import annotations

import hydra
from _entry import entry
from omegaconf import DictConfig

from analysis.nearpolicy import write_nearness
from arlas.build import register, typed
from arlas.nearpolicy import measure
from arlas.types import CheckpointError

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@entry
def main(config: DictConfig) -> None:
    """Writes ``nearpolicy/`` in the run folder and prints its table."""
    folder = measure(typed(config))
    try:
        words, paths = write_nearness(folder)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    print(words)
    print("\n".join(map(str, paths)))


if __name__ == "__main__":
    main()
