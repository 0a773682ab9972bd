"""The loop, end to end on the matrix world."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from support import ON_MATRIX, ROOT, composed, matrix_run, start_train

from arlas.checkpoint import Bundles
from arlas.config import RunConfig
from arlas.policies.hf import HFPolicy
from arlas.train import train
from arlas.types import (
    AdapterError,
    ArlasError,
    CheckpointError,
    Completion,
    ConfigurationError,
    Episode,
    PolicyError,
    Request,
    Seat,
    TrainingError,
)
from envs.matrix.env import MatrixEnv

EXPERIMENTS = sorted(p.stem for p in (ROOT / "conf" / "experiment").glob("*.yaml"))


def _adapters(run_dir: Path) -> dict[str, bytes]:
    files = run_dir.glob("iterations/*/*/adapter_model.safetensors")
    return {f.relative_to(run_dir).as_posix(): f.read_bytes() for f in files}


def _episodes(run_dir: Path, iteration: int) -> list[Episode]:
    path = Bundles(run_dir).folder(iteration) / "episodes.jsonl"
    return [Episode.from_json(line) for line in path.read_text("utf-8").splitlines()]


def _until(condition: object, process: object, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.stdout.read()  # type: ignore[attr-defined]
        assert time.monotonic() < deadline, "the run did not get that far"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four iterations that nobody interrupted, in a process of its own."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    process = start_train(run_dir, "algo.iterations=4")
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    return run_dir


def test_invariant_10_killed_run_resumes_to_the_same_adapters(whole: Path, tmp_path: Path) -> None:
    """kill -9 in the middle of an iteration, then the same command: every adapter is the same to the bit."""
    run_dir = tmp_path / "killed"
    process = start_train(run_dir, "algo.iterations=4")
    _until((run_dir / "iterations" / "0002" / "MANIFEST.json").exists, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (run_dir / "iterations" / "0004").exists()
    process = start_train(run_dir, "algo.iterations=4")
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    assert "resuming" in output
    assert _adapters(run_dir) == _adapters(whole)
    rows = [json.loads(x) for x in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [r["iteration"] for r in rows] == [1, 2, 3, 4]
    states = [
        json.loads((Bundles(d).folder(4) / "state.json").read_text()) for d in (run_dir, whole)
    ]
    assert states[0]["population"] == states[1]["population"]


def test_interrupt_ends_cleanly_and_leaves_only_whole_bundles(tmp_path: Path) -> None:
    """Ctrl-C: exit code 130, one line of explanation, nothing half-written, and the run can go on."""
    run_dir = tmp_path / "run"
    process = start_train(run_dir, "algo.iterations=500")
    _until((run_dir / "iterations" / "0001").exists, process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "continues behind what is already whole" in output
    bundles = Bundles(run_dir)
    assert not [p for p in bundles.root.iterdir() if not p.name.isdigit()]
    for iteration in bundles.iterations():
        bundles.read(iteration)


def test_longer_run_continues_a_shorter_one(whole: Path, tmp_path: Path) -> None:
    """algo.iterations may grow: 2 then 4 iterations give the adapters of 4 at once."""
    for iterations in (2, 4):
        process = start_train(tmp_path / "run", f"algo.iterations={iterations}")
        assert process.communicate(timeout=120)[0] is not None
        assert process.returncode == 0
    assert _adapters(tmp_path / "run") == _adapters(whole)


def test_several_processes_train_like_one(tmp_path: Path) -> None:
    """The main process plays, all learn: after an update the adapters are those of one process, to rounding."""
    options = ("algo.group_size=16", "algo.micro_batch_tokens=64")
    for processes in (1, 2):
        process = start_train(tmp_path / str(processes), *options, processes=processes)
        output = process.communicate(timeout=180)[0]
        assert process.returncode == 0, output
    for seat in Seat:
        one, two = (
            load_file(Bundles(tmp_path / n).folder(1) / seat / "adapter_model.safetensors")
            for n in ("1", "2")
        )
        start = load_file(Bundles(tmp_path / "1").folder(0) / seat / "adapter_model.safetensors")
        assert any(not torch.equal(one[k], start[k]) for k in one)
        for key in one:
            torch.testing.assert_close(one[key], two[key], rtol=1e-3, atol=1e-5)


def test_opponents_follow_algorithm_1(tmp_path: Path) -> None:
    """The agent meets attackers of all iterations so far, the attacker the latest agent only."""
    train(matrix_run(tmp_path, "algo.iterations=5", "algo.groups=6", "algo.group_size=2"))
    met: set[str] = set()
    for iteration in range(1, 6):
        for episode in _episodes(tmp_path, iteration):
            assert episode.attacker is not None
            latest = "base" if iteration == 1 else f"rl-{iteration - 1}"
            assert episode.agent.version == latest
            if episode.learner is Seat.ATTACKER:
                assert episode.attacker.version == latest
            else:
                met.add(episode.attacker.version)
                number = (
                    0 if episode.attacker.version == "base" else int(episode.attacker.version[3:])
                )
                assert number < iteration
    assert len(met) >= 4


def test_latest_draw_meets_only_the_latest_attacker(tmp_path: Path) -> None:
    """population=latest is the paper's no_pbl."""
    train(matrix_run(tmp_path, "population=latest", "algo.iterations=3"))
    for iteration in (1, 2, 3):
        for episode in _episodes(tmp_path, iteration):
            assert episode.attacker is not None
            assert episode.attacker.version == ("base" if iteration == 1 else f"rl-{iteration - 1}")


def test_training_without_an_attacker(tmp_path: Path) -> None:
    """no_al: task reward only, one seat, no injection anywhere."""
    train(matrix_run(tmp_path, "game.attack=false", "algo.seats=[agent]", "algo.iterations=2"))
    episodes = _episodes(tmp_path, 2)
    assert episodes
    assert all(e.attacker is None and list(e.rewards) == [Seat.AGENT] for e in episodes)


def test_learning_happens(tmp_path: Path) -> None:
    """Against a fixed attacker the agent of the observed game learns to answer."""
    config = matrix_run(
        tmp_path,
        "algo.seats=[agent]",
        "algo.iterations=12",
        "algo.groups=4",
        "algo.group_size=32",
        "algo.lr=1e-2",
        "algo.beta=0",
    )
    train(config)
    rows = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["agent/tsr"] < 0.3
    assert rows[-1]["agent/tsr"] > 0.6


@pytest.mark.parametrize("lr", [0.05, 1e-4])
def test_invariant_07_stale_engine_is_found(
    lr: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that serves the adapter before under a new name stops the run, however small the step was."""
    load = HFPolicy.load_adapter
    first: dict[str, Path] = {}

    def stale(self: HFPolicy, name: str, path: Path) -> None:
        load(self, name, first.setdefault(name.split("-")[0], path))

    monkeypatch.setattr(HFPolicy, "load_adapter", stale)
    with pytest.raises(AdapterError, match=r"does not serve|still serves"):
        train(matrix_run(tmp_path, "algo.iterations=10", f"algo.lr={lr}", "algo.group_size=16"))
    assert Bundles(tmp_path).iterations()[-1] <= 3


def test_unknown_objective_is_found_in_the_first_iteration(tmp_path: Path) -> None:
    """A misspelt metric would make a sweep optimize NaN: the message lists what there is."""
    with pytest.raises(ConfigurationError, match=r"agent/asrr is no metric.*agent/asr"):
        train(matrix_run(tmp_path, "objective=agent/asrr"))
    assert Bundles(tmp_path).iterations() == [0]


def test_objective_of_zero_is_zero(tmp_path: Path) -> None:
    """The best value of an error rate is 0, not NaN."""
    assert train(matrix_run(tmp_path, "objective=agent/errors")) == 0.0


def test_placement_that_the_world_does_not_judge_is_refused(tmp_path: Path) -> None:
    """In the matrix world only planted words attack; other placements would be no attack at all."""
    with pytest.raises(ConfigurationError, match=r"placement=dom, not end"):
        train(matrix_run(tmp_path, "game.injection.placement=end"))
    assert not Bundles(tmp_path).iterations()


def test_invariant_06_faults_never_become_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes whose engine fails are counted as errors and have no rewards; the rest is learned from."""
    complete = HFPolicy.complete
    calls = 0

    async def flaky(self: HFPolicy, request: Request) -> Completion:
        nonlocal calls
        calls += 1
        if calls > 10 and calls % 5 == 0:
            raise PolicyError("the engine hiccuped")
        return await complete(self, request)

    monkeypatch.setattr(HFPolicy, "complete", flaky)
    train(matrix_run(tmp_path, "algo.episode_retries=0", "algo.group_size=8"))
    episodes = _episodes(tmp_path, 1)
    failed = [e for e in episodes if not e.ok]
    assert failed
    assert all(not e.rewards and e.outcome is None and "hiccuped" in str(e.error) for e in failed)
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row["agent/errors"] + row["attacker/errors"] == len(failed)


def test_mostly_failing_iteration_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More faults than algo.max_error_share: no bundle is written, and the message shows the first."""

    def broken(self: MatrixEnv, action: str) -> None:
        from envs.base import WorldError

        raise WorldError("the page is gone")

    monkeypatch.setattr(MatrixEnv, "step", broken)
    with pytest.raises(ArlasError, match="the page is gone"):
        train(matrix_run(tmp_path))
    assert Bundles(tmp_path).iterations() == [0]


def test_damaged_bundle_is_refused(tmp_path: Path) -> None:
    """A flipped byte in the newest bundle: the message names the file and the way out."""
    train(matrix_run(tmp_path, "algo.iterations=2"))
    path = Bundles(tmp_path).folder(2) / "agent" / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        CheckpointError, match=r"0002/agent/adapter_model\.safetensors is damaged.*delete"
    ):
        train(matrix_run(tmp_path, "algo.iterations=3"))


def test_missing_bundle_or_config_is_noticed(tmp_path: Path) -> None:
    """A gap between bundles, or bundles of which nobody knows the config, stop the run."""
    train(matrix_run(tmp_path, "algo.iterations=3"))
    moved = tmp_path / "moved"
    Bundles(tmp_path).folder(1).rename(moved)
    with pytest.raises(CheckpointError, match="lacks bundles between 0 and 3"):
        train(matrix_run(tmp_path, "algo.iterations=4"))
    moved.rename(Bundles(tmp_path).folder(1))
    (tmp_path / "config.yaml").unlink()
    with pytest.raises(ConfigurationError, match=r"no config\.yaml"):
        train(matrix_run(tmp_path, "algo.iterations=4", "seed=7"))
    assert not (tmp_path / "config.yaml").exists()


def test_adapter_that_is_not_finite_is_never_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that an optimizer step has blown up stop the run before a bundle holds them."""
    step = torch.optim.AdamW.step

    def exploding(self: torch.optim.AdamW, *args: object) -> None:
        step(self)
        self.param_groups[0]["params"][0].data.fill_(float("inf"))

    monkeypatch.setattr(torch.optim.AdamW, "step", exploding)
    with pytest.raises(TrainingError, match="not finite"):
        train(matrix_run(tmp_path, "algo.group_size=16"))
    assert Bundles(tmp_path).iterations() == [0]


def test_folder_of_another_config_is_refused(tmp_path: Path) -> None:
    """The differing key is named, and the folder stays as it was."""
    train(matrix_run(tmp_path))
    before = (tmp_path / "config.yaml").read_text()
    with pytest.raises(ConfigurationError, match=r"algo\.lr"):
        train(matrix_run(tmp_path, "algo.lr=0.123"))
    assert (tmp_path / "config.yaml").read_text() == before


def test_adapter_of_another_base_model_is_refused(tmp_path: Path) -> None:
    """init.agent from a run of another model: refused before anything is played."""
    train(matrix_run(tmp_path / "a"))
    foreign = Bundles(tmp_path / "a").folder(1) / "agent"
    config = matrix_run(tmp_path / "b", "policy.model=tiny-qwen3", f"init.agent={foreign}")
    with pytest.raises(AdapterError):
        train(config)
    assert Bundles(tmp_path / "b").iterations() == []


def test_runs_start_from_sft_adapters(tmp_path: Path) -> None:
    """With init folders the first version is called sft, and the KL to it is 0 at the first step."""
    train(matrix_run(tmp_path / "a", "algo.iterations=2"))
    made = {s: Bundles(tmp_path / "a").folder(2) / s for s in Seat}
    config = matrix_run(
        tmp_path / "b",
        f"init.agent={made[Seat.AGENT]}",
        f"init.attacker={made[Seat.ATTACKER]}",
        "algo.beta=0.1",
        "algo.group_size=32",
    )
    train(config)
    row = json.loads((tmp_path / "b" / "metrics.jsonl").read_text())
    assert row["agent/kl"] == pytest.approx(0.0, abs=1e-6)
    assert {e.agent.version for e in _episodes(tmp_path / "b", 1)} == {"sft"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes_and_runs_on_the_matrix_world(name: str, tmp_path: Path) -> None:
    """Each file of conf/experiment/ is a valid config and goes once around the loop."""
    given = composed(f"experiment={name}", f"run_dir={tmp_path}")
    given.validate()
    others = [o for o in ON_MATRIX if not o.startswith(("env=", "policy"))]
    small = composed(
        f"experiment={name}",
        *others,
        f"run_dir={tmp_path}",
        "init.agent=null",
        "init.attacker=null",
    )
    # Worlds and engines have keys of their own, so the whole group is exchanged.
    matrix = matrix_run(tmp_path)
    train(replace(small, env=matrix.env, policy=matrix.policy, teachers={}))
    assert Bundles(tmp_path).iterations() == [0, 1]


def test_saved_config_is_the_one_that_ran(whole: Path) -> None:
    """config.yaml beside a run reads back to a valid config with the overrides in it."""
    from arlas.build import typed

    saved = yaml.safe_load((whole / "config.yaml").read_text())
    config = typed(saved)
    assert isinstance(config, RunConfig)
    assert (config.algo.iterations, config.lora.rank) == (4, 4)
