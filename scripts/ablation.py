"""The ablation chart of a sweep: ``python scripts/ablation.py runs/shaping-ablation [OUT_DIR]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from _entry import entry
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from analysis.ablation import curves, plot, read_sweep, summary, to_csv
from arlas.checkpoint import write_file
from arlas.types import ConfigurationError


def write(sweep: Path, out: Path) -> str:
    """Writes ``ablation.csv``, ``.png`` and ``.md`` into a folder; returns the table and where they lie."""
    rows = read_sweep(sweep)
    found = curves(rows)
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / "ablation.csv", to_csv(rows))
    write_file(out / "ablation.md", summary(found) + "\n")
    picture = plot(found, out / "ablation.png")
    return f"{summary(found)}\n{out / 'ablation.csv'}\n{picture}"


class AfterSweep(Callback):
    """Draws the chart when a sweep ends."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Called by Hydra once all jobs are done."""
        sweep = Path(config.hydra.sweep.dir)
        print(write(sweep, sweep))


@entry
def main() -> None:
    """Prints the table and the paths of CSV and picture."""
    if len(sys.argv) not in (2, 3):
        raise ConfigurationError("usage: python scripts/ablation.py SWEEP_DIR [OUT_DIR]")
    print(write(Path(sys.argv[1]), Path(sys.argv[-1])))


if __name__ == "__main__":
    main()
