"""Lets the policy retell the reasoning of demonstrations: ``python scripts/rephrase.py experiment=… name=…``."""

from __future__ import annotations

import json

import hydra
from _entry import entry
from omegaconf import DictConfig

from arlas.build import register, typed
from arlas.rephrase import rephrase

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@entry
def main(config: DictConfig) -> None:
    """Writes ``rephrased/`` in the run folder and prints what was rewritten and why the rest was not."""
    out, counts = rephrase(typed(config))
    for seat, found in counts.items():
        print(f"{seat}: {json.dumps(found)}")
    print(f"{out}  (sft.demos={out})")


if __name__ == "__main__":
    main()
