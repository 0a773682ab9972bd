"""Invariant 15: files from elsewhere are read without running code."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import pytest
from learning_cases import make_learner, stir

from arlas.config import InitConfig
from arlas.types import AdapterError, CheckpointError, Seat


class _Bomb:
    """Unpickling this creates a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path(self.target),)  # type: ignore[return-value]


def test_invariant_15_a_pickle_in_a_checkpoint_does_not_run(tmp_path: Path) -> None:
    """Even with a digest that fits: the optimizer file is read with weights_only."""
    folder, target = tmp_path / "ck", tmp_path / "ran"
    make_learner().save(folder)
    data = pickle.dumps(_Bomb(target), protocol=2)
    (folder / "agent.optimizer.pt").write_bytes(data)
    state = json.loads((folder / "learner.json").read_text())
    state["files"]["agent.optimizer.pt"] = hashlib.sha256(data).hexdigest()
    (folder / "learner.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="not a whole learner checkpoint"):
        make_learner().load(folder)
    assert not target.exists()
    pickle.loads(data)  # the bomb is real
    assert target.exists()


def test_invariant_15_a_pickled_adapter_is_refused(tmp_path: Path) -> None:
    """PEFT would fall back to adapter_model.bin; here an adapter is safetensors or nothing."""
    folder, target = tmp_path / "sft", tmp_path / "ran"
    made = make_learner()
    stir(made)
    made.save_adapter(Seat.AGENT, folder)
    make_learner(init=InitConfig(agent=str(folder)))  # good as it is
    shutil.move(folder / "adapter_model.safetensors", tmp_path / "aside")
    (folder / "adapter_model.bin").write_bytes(pickle.dumps(_Bomb(target), protocol=2))
    with pytest.raises(AdapterError, match="safetensors"):
        make_learner(init=InitConfig(agent=str(folder)))
    assert not target.exists()
