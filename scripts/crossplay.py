"""Plays agents against attackers of a run: ``python scripts/crossplay.py RUN_DIR [eval.episodes=32 …]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from _entry import entry
from omegaconf import OmegaConf

from analysis.crossplay import plot_crossplay
from arlas.build import load_run, typed
from arlas.evaluate import crossplay


@entry
def main() -> None:
    """Writes ``crossplay.csv`` and ``crossplay.png``; a second call plays only what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument(
        "--out", type=Path, help="folder of the result (default: RUN_DIR/crossplay)"
    )
    parser.add_argument(
        "overrides", nargs="*", help="e.g. eval.agents=[base,rl-5] eval.episodes=32"
    )
    args = parser.parse_args()
    saved = OmegaConf.create(load_run(args.run_dir))
    config = typed(OmegaConf.merge(saved, OmegaConf.from_dotlist(args.overrides)))
    config.run_dir = str(args.run_dir)
    path = crossplay(config, args.out)
    picture = path.with_suffix(".png")
    plot_crossplay(path, picture)
    print(f"{path}\n{picture}")


if __name__ == "__main__":
    main()
