"""Warm start of both seats from demonstrations: ``python scripts/sft.py experiment=… name=… [sft.demos=rephrased]``."""

from __future__ import annotations

from pathlib import Path

import hydra
from _entry import entry
from omegaconf import DictConfig

from arlas.build import register, typed
from arlas.collect import demonstrations
from arlas.warmstart import warm_start

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@entry
def main(config: DictConfig) -> None:
    """Writes ``sft/agent`` and ``sft/attacker``; train from them with init.agent=… init.attacker=…"""
    run = typed(config)
    root = Path(run.run_dir)
    made = warm_start(run, demonstrations(run), root / "sft")
    print(f"init.agent={made.agent} init.attacker={made.attacker}")


if __name__ == "__main__":
    main()
