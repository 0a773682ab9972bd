"""Several processes, one run: ``accelerate launch --num_processes N scripts/train.py …``.

The main process plays and keeps the run folder; the others wait for its commands and take their share of
every update's micro-batches. With one process nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from arlas.learning.learner import Learner
from arlas.types import ConfigurationError, Group, Seat

# The others wait in a broadcast while the main process plays, which may take hours.
_PATIENCE = timedelta(days=7)


def check_engine(policy: Any) -> None:
    """Raises `ConfigurationError` for an engine that cannot live beside several trainer processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and getattr(policy, "single_process", False):
        raise ConfigurationError(
            "this engine (policy=vllm) cannot start in a run of several processes: it would wait for the "
            "others in a process group of its own; use policy=hf, or one process"
        )


def is_main() -> bool:
    """Whether this process plays the games."""
    # On a CPU, accelerate starts its processes' group only when told that there is no accelerator.
    on_cpu = not torch.accelerator.is_available()
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    state = PartialState(cpu=on_cpu, **({} if alone else {"timeout": _PATIENCE}))
    return bool(state.is_main_process)


def update(learner: Learner, seat: Seat, groups: Sequence[Group], seed: int) -> dict[str, float]:
    """`Learner.update` in all processes; called by the main one."""
    _tell(learner, ("update", seat, tuple(groups), seed))
    return learner.update(seat, groups, seed)


def load(learner: Learner, folder: Path) -> None:
    """`Learner.load` in all processes; called by the main one."""
    _tell(learner, ("load", folder))
    learner.load(folder)


def stop(learner: Learner) -> None:
    """Lets the other processes return from `follow`."""
    _tell(learner, ("stop",))


def follow(learner: Learner) -> None:
    """What the other processes do: obey until told to stop."""
    while True:
        command, *args = broadcast_object_list([None], from_process=0)[0]
        if command == "stop":
            return
        getattr(learner, command)(*args)


def _tell(learner: Learner, message: tuple[object, ...]) -> None:
    if learner.accelerator.num_processes > 1:
        broadcast_object_list([message], from_process=0)
