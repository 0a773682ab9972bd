"""Invariant 10, the learner's share: it goes on from a checkpoint as if it had not been stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import learner_resume
import pytest
from learning_cases import groups_sharing_prompts, make_learner, stir

from arlas.choices import Baseline, LengthPenalty
from arlas.config import InitConfig
from arlas.learning.shaping import Shaping
from arlas.rules import RewardConfig
from arlas.shaping import ShapingConfig
from arlas.types import CheckpointError, Seat

HERE = Path(__file__).parent


def test_invariant_10_third_update_is_bit_identical_in_a_new_process(tmp_path: Path) -> None:
    """Two updates, save, a new process, load, third update: adapters and metrics of the unbroken run."""
    unbroken = learner_resume.start()
    second = [learner_resume.update(unbroken, i) for i in range(2)][-1]
    unbroken.save(tmp_path / "half")
    third = learner_resume.update(unbroken, 2)
    paths = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, learner_resume.__file__, str(tmp_path / "half")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == third
    assert second != third


def _saved(folder: Path) -> Path:
    learner = make_learner()
    learner.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
    learner.save(folder)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "learner.json",
        "agent.optimizer.pt",
        "attacker.optimizer.pt",
        "agent/adapter_model.safetensors",
    ],
)
@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_invariant_10_damage_is_found(name: str, damage: str, tmp_path: Path) -> None:
    """A cut, changed or missing file raises CheckpointError that names the folder."""
    file = _saved(tmp_path / "ck") / name
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    else:
        middle = len(data) // 2 if name != "learner.json" else data.index(b'"files"')
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    with pytest.raises(CheckpointError, match="ck"):
        make_learner().load(tmp_path / "ck")


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    """Another model, or another reference, would silently train something else."""
    _saved(tmp_path / "ck")
    with pytest.raises(CheckpointError, match="model = tiny-llama"):
        make_learner("tiny-qwen3").load(tmp_path / "ck")
    other = make_learner()
    stir(other)
    other.save_adapter(Seat.AGENT, tmp_path / "sft")
    with pytest.raises(CheckpointError, match="references"):
        make_learner(init=InitConfig(agent=str(tmp_path / "sft"))).load(tmp_path / "ck")


def test_a_checkpoint_names_no_place_of_this_machine(tmp_path: Path) -> None:
    """Bundles may move: nothing in the JSON files is an absolute path."""
    folder = _saved(tmp_path / "ck")
    for file in (folder / "learner.json", folder / "agent" / "adapter_config.json"):
        text = file.read_text(encoding="utf-8")
        json.loads(text)
        assert str(tmp_path) not in text
        assert '"/' not in text


def test_invariant_10_moving_averages_and_phases_go_on(tmp_path: Path) -> None:
    """Two updates, save, load into a new learner, a third: averages, ramp and adapters of the unbroken run."""
    shaping = Shaping.of(
        ShapingConfig(length=LengthPenalty.GROUP, warmup=1, ramp=4), RewardConfig(), 50
    )
    learners = []
    for _ in range(2):
        made = make_learner(baseline=Baseline.MOVING, normalize_std=False)
        made.shaping = shaping
        learners.append(made)
    unbroken, resumed = learners
    for i in range(2):
        unbroken.update(Seat.AGENT, groups_sharing_prompts(seed=i), seed=i)
    unbroken.save(tmp_path)
    resumed.load(tmp_path)
    assert resumed.moving == unbroken.moving
    assert unbroken.moving[Seat.AGENT].averages[""] != 0.0
    assert unbroken.moving[Seat.ATTACKER].averages == {}
    third = [m.update(Seat.AGENT, groups_sharing_prompts(seed=2), seed=2) for m in learners]
    assert third[0] == third[1]
    assert third[0]["penalty_length"] != 0.0
    assert resumed.moving == unbroken.moving
    for name, parameter in unbroken.parameters(Seat.AGENT).items():
        assert parameter.equal(resumed.parameters(Seat.AGENT)[name])


def test_checkpoints_without_moving_averages_are_read(tmp_path: Path) -> None:
    """Those that were written before there were any start with none."""
    state = json.loads((_saved(tmp_path / "ck") / "learner.json").read_text())
    del state["moving"]
    (tmp_path / "ck" / "learner.json").write_text(json.dumps(state))
    learner = make_learner()
    learner.load(tmp_path / "ck")
    assert learner.moving[Seat.AGENT].averages == {}
    assert learner.updates[Seat.AGENT] == 1
