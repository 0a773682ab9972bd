"""What several tests of the loop share: configs of runs on the matrix world."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hydra import compose, initialize_config_dir

from arlas.build import register, typed
from arlas.config import RunConfig

ROOT = Path(__file__).resolve().parent.parent
ON_MATRIX = [
    "env=matrix",
    "policy=tiny",
    "policy.model=tiny-llama-words",
    "game.max_steps=1",
    "game.reply=word",
    "game.user_fields=[]",
    "game.injection.placement=dom",
    "sampling.max_tokens=1",
    "lora.rank=4",
    "lora.alpha=8",
    "lora.targets=null",
    "algo.iterations=1",
    "algo.groups=2",
    "algo.group_size=4",
    "algo.batch_size=0",
    "eval.split=train",
    "logger=quiet",
]
"""Overrides that let any experiment run on the matrix world in seconds."""


def composed(*overrides: str, name: str = "train") -> RunConfig:
    """The typed config that the command line would give."""
    register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return typed(compose(name, list(overrides)))


def matrix_run(run_dir: Path, *overrides: str) -> RunConfig:
    """A small run on the matrix world in ``run_dir``."""
    return composed("experiment=matrix", *ON_MATRIX, f"run_dir={run_dir}", *overrides)


def start_train(run_dir: Path, *overrides: str, processes: int = 1) -> subprocess.Popen[str]:
    """``scripts/train.py`` on the matrix world as a process, or several, of its own."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    command = [sys.executable, *(launcher if processes > 1 else [])]
    command += [str(ROOT / "scripts" / "train.py"), "experiment=matrix", *ON_MATRIX]
    return subprocess.Popen(
        [*command, f"hydra.run.dir={run_dir}", "threads=1", *overrides],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
