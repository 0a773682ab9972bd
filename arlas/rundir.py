"""A run folder: its lock, its config, its metrics."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from arlas.build import load_run, plain
from arlas.checkpoint import Bundles, locked, write_file
from arlas.choices import Resume
from arlas.config import LoggerConfig, RunConfig
from arlas.fingerprint import differences, fingerprint
from arlas.types import ConfigurationError, MissingExtraError


class RunDir:
    """Opens a run folder for one process.

    Raises `ConfigurationError` if it belongs to another config or another process is in it, and
    `MissingExtraError` if a logger's package is missing.
    """

    def __init__(self, config: RunConfig) -> None:
        if config.logger.wandb and importlib.util.find_spec("wandb") is None:
            raise MissingExtraError(
                'logger.wandb=true needs the package wandb: pip install -e ".[wandb]"'
            )
        self.path = Path(config.run_dir)
        self.bundles = Bundles(self.path)
        self._check(config)
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(locked(self.path))
        write_file(self.path / "config.yaml", yaml.safe_dump(plain(config), sort_keys=False))

    def _check(self, config: RunConfig) -> None:
        if self.bundles.iterations() and config.resume is Resume.NEVER:
            raise ConfigurationError(
                f"{self.path} already holds a run and resume=never; choose another run_dir or resume=auto"
            )
        if not (self.path / "config.yaml").is_file():
            if self.bundles.iterations():
                raise ConfigurationError(
                    f"{self.path} holds bundles but no config.yaml, so nobody knows whose they are: "
                    "restore the file, or choose another run_dir"
                )
            return
        old, new = load_run(self.path), plain(config)
        if self.bundles.iterations() and fingerprint(old) != fingerprint(new):
            raise ConfigurationError(
                f"{self.path} was started with another config; choose another run_dir. "
                "Different: " + "; ".join(differences(old, new)[:8])
            )

    def close(self) -> None:
        """Gives the folder back."""
        self._stack.close()


class MetricLog:
    """Metrics as JSON lines, TensorBoard and, on request, Weights & Biases.

    ``rows`` are those of the iterations already done: the file is rewritten from them, so that a run which
    was killed between two writes has each iteration once.
    """

    def __init__(
        self, run_dir: Path, config: LoggerConfig, name: str, rows: list[dict[str, Any]]
    ) -> None:
        self._path = run_dir / "metrics.jsonl"
        write_file(self._path, "".join(json.dumps(row) + "\n" for row in rows))
        self._board: Any = None
        self._wandb: Any = None
        if config.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run_dir / "tensorboard"), purge_step=len(rows) + 1)
        if config.wandb:
            import wandb

            self._wandb = wandb.init(
                project=config.wandb_project, name=name, id=name, resume="allow", dir=str(run_dir)
            )

    def write(self, row: Mapping[str, Any]) -> None:
        """Appends one iteration's metrics; ``row["iteration"]`` numbers it. NaN is written as null."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(row)) + "\n")
        numbers = {k: v for k, v in finite(row).items() if isinstance(v, (int, float))}
        if self._board is not None:
            for key, value in numbers.items():
                self._board.add_scalar(key, value, row["iteration"])
            self._board.flush()
        if self._wandb is not None:
            self._wandb.log(numbers, step=row["iteration"])

    def close(self) -> None:
        """Flushes and closes the writers."""
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with NaN and infinities as None: JSON has no word for them."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
