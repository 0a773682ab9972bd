"""Shaping, refill and moving baselines in whole runs on the matrix world."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, composed, matrix_run

from arlas.build import plain
from arlas.checkpoint import Bundles
from arlas.config import RunConfig
from arlas.fingerprint import differences
from arlas.rollout import Driver, GroupSpec
from arlas.train import train
from arlas.types import Episode, Group, Seat

ARMS = sorted(p.stem for p in (ROOT / "conf" / "arm").glob("*.yaml"))
REFILL = ("algo.refill=3", "algo.groups=5", "algo.group_size=2", "algo.iterations=3")
MOVING = ("algo.baseline=moving", "algo.normalize_std=false", "algo.iterations=4")


def _rows(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (run_dir / "metrics.jsonl").read_text().splitlines()]


def _adapters(run_dir: Path) -> dict[str, bytes]:
    files = run_dir.glob("iterations/*/*/adapter_model.safetensors")
    return {f.relative_to(run_dir).as_posix(): f.read_bytes() for f in files}


def _learned(run_dir: Path) -> list[dict[str, Any]]:
    """The metrics without what the clock says."""
    return [{k: v for k, v in r.items() if not k.startswith("time/")} for r in _rows(run_dir)]


def _groups(run_dir: Path, iteration: int, seat: Seat) -> list[list[float]]:
    """The rewards of a seat's groups, in the order they were played."""
    path = Bundles(run_dir).folder(iteration) / "episodes.jsonl"
    found: dict[int, list[float]] = {}
    for line in path.read_text("utf-8").splitlines():
        episode = Episode.from_json(line)
        if episode.learner is seat:
            found.setdefault(episode.seed, []).append(episode.rewards[seat])
    return list(found.values())


@pytest.fixture(scope="module")
def refilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with refill that nobody interrupted."""
    run_dir = tmp_path_factory.mktemp("refilled")
    train(matrix_run(run_dir, *REFILL))
    return run_dir


def test_refill_replaces_flat_groups_within_its_budget(refilled: Path) -> None:
    """One more group for each that teaches nothing, again while those are flat, at most 3; all are saved."""
    replaced = 0
    for row in _rows(refilled):
        for seat in Seat:
            played = _groups(refilled, row["iteration"], seat)
            flat = [len(set(rewards)) == 1 for rewards in played]
            extra = int(row[f"{seat}/groups_refilled"])
            # Played in turn, a group is added while fewer than 5 teach and fewer than 3 were added.
            expected = 5
            while expected < 8 and expected - sum(flat[:expected]) < 5:
                expected += 1
            assert len(played) == 5 + extra == expected
            assert row[f"{seat}/groups_flat"] == sum(flat)
            assert row[f"{seat}/groups"] == len(flat) - sum(flat)
            assert row[f"{seat}/games"] == 2 * len(played)
            replaced += extra
    assert replaced > 3


def test_refill_leaves_the_first_groups_as_they_are(refilled: Path, tmp_path: Path) -> None:
    """The first iteration's own groups are those of the same run without refill."""
    train(matrix_run(tmp_path, *REFILL, "algo.refill=0", "algo.iterations=1"))
    assert "agent/groups_refilled" not in _rows(tmp_path)[0]
    for seat in Seat:
        assert _groups(tmp_path, 1, seat) == _groups(refilled, 1, seat)[:5]


class _Killed(BaseException):
    pass


def test_invariant_10_a_run_killed_while_it_refills_goes_on_the_same(
    refilled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in a round of refill, then started again: adapters and metrics of the unbroken run."""
    rollout, calls = Driver.rollout, 0

    async def dying(self: Driver, specs: Sequence[GroupSpec], *rest: Any) -> list[Group]:
        nonlocal calls
        calls += len(specs) < 10 and len(Bundles(tmp_path).iterations()) == 2
        if calls == 1:
            raise _Killed
        return await rollout(self, specs, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Driver, "rollout", dying)
        with pytest.raises(_Killed):
            train(matrix_run(tmp_path, *REFILL))
    assert Bundles(tmp_path).iterations() == [0, 1]
    train(matrix_run(tmp_path, *REFILL))
    assert _adapters(tmp_path) == _adapters(refilled)
    assert _learned(tmp_path) == _learned(refilled)


def test_invariant_10_the_moving_baseline_goes_on(tmp_path: Path) -> None:
    """Four iterations at once, or two and then two: the same adapters, metrics and averages."""
    train(matrix_run(tmp_path / "whole", *MOVING))
    for iterations in (2, 4):
        train(matrix_run(tmp_path / "parts", *MOVING, f"algo.iterations={iterations}"))
    assert _adapters(tmp_path / "parts") == _adapters(tmp_path / "whole")
    assert _learned(tmp_path / "parts") == _learned(tmp_path / "whole")
    states = [
        json.loads((Bundles(tmp_path / d).folder(4) / "learner" / "learner.json").read_text())
        for d in ("parts", "whole")
    ]
    assert states[0]["moving"] == states[1]["moving"]
    assert set(states[0]["moving"]["agent"]) == {""}
    assert all(row["agent/groups_flat"] == 0 for row in _rows(tmp_path / "whole"))


def _arm(name: str, run_dir: Path) -> RunConfig:
    return composed(
        "experiment=shaping_ablation",
        f"arm={name}",
        f"run_dir={run_dir}",
        *("init.agent=null", "init.attacker=null"),
        *("algo.iterations=2", "algo.groups=6", "algo.group_size=3", "lora.rank=2"),
    )


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_is_one_change_and_runs(name: str, tmp_path: Path) -> None:
    """Each file of conf/arm/ composes with the ablation, changes only what its name says, and trains."""
    config = _arm(name, tmp_path)
    changed = differences(plain(_arm("baseline", tmp_path)), plain(config))
    assert len(changed) <= 3  # a penalty with its warm-up and ramp
    assert bool(changed) == (name != "baseline")
    assert all(c.startswith(("algo.", "shaping.")) for c in changed)
    train(config)
    rows = _rows(tmp_path)
    assert len(rows) == 2
    penalised = "penalty_length" if "length_" in name else "penalty_repetition"
    if name in ("length_overlong", "repetition_scalar"):
        assert rows[-1][f"agent/{penalised}"] < 0.0
        raw, shaped = rows[-1]["agent/reward_mean"], rows[-1]["agent/reward_shaped_mean"]
        assert shaped == pytest.approx(raw + rows[-1][f"agent/{penalised}"])
    if name == "repetition_tokens":
        share = rows[-1]["agent/repeated_share"]
        assert rows[-1]["agent/penalty_tokens"] == pytest.approx(-0.05 * share)
        assert share > 0.0
    assert 1.0 < rows[-1]["agent/reply_tokens"] <= 12.0
    assert rows[-1]["agent/reply_tokens"] == pytest.approx(rows[-1]["agent/agent_tokens"])


def test_saved_rewards_and_rates_are_raw(tmp_path: Path) -> None:
    """A heavy penalty changes no reward in the saved episodes, and TSR, ASR and reward_mean follow from those."""
    train(_arm("length_overlong", tmp_path))
    rewards = [r for group in _groups(tmp_path, 2, Seat.AGENT) for r in group]
    assert set(rewards) <= {-1.0, 1.0}
    row = _rows(tmp_path)[-1]
    assert row["agent/reward_mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert row["agent/tsr"] == pytest.approx(rewards.count(1.0) / len(rewards))
