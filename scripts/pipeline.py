"""The whole pipeline: ``python scripts/pipeline.py experiment=demo_web name=…``. What is already there is reused."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from _entry import entry
from hydra import compose, initialize_config_dir

from analysis.crossplay import plot_crossplay
from analysis.report import write_report
from arlas.build import register, typed
from arlas.checkpoint import Bundles
from arlas.collect import collect
from arlas.config import RunConfig
from arlas.evaluate import cells_of, crossplay
from arlas.rundir import RunDir
from arlas.train import train
from arlas.warmstart import made, warm_start

CONF = Path(__file__).resolve().parent.parent / "conf"


def load(overrides: list[str]) -> RunConfig:
    """The config that these overrides choose, in ``runs/NAME`` unless they name a run_dir."""
    register()
    own = any(o.startswith("run_dir=") for o in overrides)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        # by default the folder is that of a Hydra job, which there is none of here
        config = typed(compose("train", overrides if own else [*overrides, "run_dir=."]))
    if not own:
        config.run_dir = f"runs/{config.name}"
    return config


def stage(number: int, title: str, there: bool, work: Callable[[], Any]) -> Any:
    """Says what is done and how long it took."""
    print(f"\n[{number}/5] {title}: {'already there, reused' if there else 'running'}", flush=True)
    began = time.monotonic()
    result = work()
    print(f"      {time.monotonic() - began:.0f} s", flush=True)
    return result


@entry
def main() -> None:
    """Demonstrations, warm start (of the seats that init names no adapter for), self-play, cross-play, report."""
    logging.basicConfig(level=logging.INFO, format="    %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    config = load(sys.argv[1:])
    root = Path(config.run_dir)
    started = time.monotonic()

    lacking = [seat for seat in config.algo.seats if getattr(config.init, seat) is None]
    if lacking:
        demos = root / "demos"
        wanted = -(-config.collect.episodes // config.collect.chunk)
        there = len(list(demos.glob("episodes-*.jsonl"))) >= wanted
        title = "demonstrations by teachers"
        episodes = stage(1, title, there, lambda: collect(config, demos))
        warm = replace(config, algo=replace(config.algo, seats=lacking))
        there = made(warm, root / "sft")
        title = "warm start by imitation"
        start = stage(2, title, there, lambda: warm_start(warm, episodes, root / "sft"))
        for seat in lacking:
            setattr(config.init, seat, getattr(start, seat))
    RunDir(config).close()  # refuses a folder that another config has filled
    done = max(Bundles(root).iterations(), default=-1)
    there = done >= config.algo.iterations
    title = "self-play" if done < 0 or there else f"self-play, resuming after iteration {done}"
    stage(3, title, there, lambda: None if there else train(config))
    there = all(cell.done() for cell in cells_of(config, root / "crossplay"))
    table = stage(4, "cross-play", there, lambda: crossplay(config))
    picture = table.with_suffix(".png")
    plot_crossplay(table, picture)
    report = stage(5, "report", False, lambda: write_report(root))
    print(f"\ndone in {time.monotonic() - started:.0f} s\n  {report}\n  {picture}")


if __name__ == "__main__":
    main()
