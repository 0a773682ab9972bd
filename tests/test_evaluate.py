"""Cross-play and demonstrations on the matrix world."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support import matrix_run

from arlas import evaluate
from arlas.build import plain, typed
from arlas.checkpoint import Bundles, locked
from arlas.collect import collect, filtered
from arlas.config import RunConfig
from arlas.evaluate import crossplay
from arlas.policies.hf import HFPolicy
from arlas.rollout import Driver
from arlas.statistics import CROSSPLAY_HEADER
from arlas.train import train
from arlas.types import (
    ArlasError,
    CheckpointError,
    Completion,
    ConfigurationError,
    Episode,
    Outcome,
    PolicyError,
    PolicyRef,
    Request,
    Seat,
    Verdict,
)
from arlas.warmstart import warm_start

AGENTS = "eval.agents=[base,rl-2]"
ATTACKERS = "eval.attackers=[none,base,rl-2]"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A short run to evaluate."""
    config = matrix_run(
        tmp_path_factory.mktemp("run"),
        "algo.iterations=2",
        "algo.lr=3e-2",
        "algo.group_size=32",
        AGENTS,
        ATTACKERS,
        "eval.episodes=12",
        "eval.seeds=[0,1]",
    )
    train(config)
    return config


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _played(out: Path) -> list[Episode]:
    files = sorted((out / "cells").glob("*/episodes.jsonl"))
    return [Episode.from_json(x) for f in files for x in f.read_text().splitlines()]


def test_crossplay_plays_every_pair_and_counts_right(run: RunConfig, tmp_path: Path) -> None:
    """2 agents × 3 attackers × 2 seeds; the table agrees with a recount of the saved episodes."""
    path = crossplay(run, tmp_path)
    rows = _rows(path)
    assert tuple(rows[0]) == CROSSPLAY_HEADER
    assert len(rows) == 12
    episodes = _played(tmp_path)
    assert len(episodes) == 12 * 12
    for row in rows[:6]:
        own = [
            e
            for e in episodes
            if e.agent.version == row["agent"]
            and (e.attacker.version if e.attacker else "none") == row["attacker"]
        ]
        assert len(own) == 24  # both seeds
        both = [r for r in rows if (r["agent"], r["attacker"]) == (row["agent"], row["attacker"])]
        assert sum(int(r["successes"]) for r in both) == sum(
            e.outcome is Outcome.SUCCESS for e in own
        )
        seen = [e for e in own if e.attacker is None or e.verdict.exposed]
        assert sum(int(r["leaks"]) for r in both) == sum(e.outcome is Outcome.LEAK for e in seen)
    for row in rows:
        if row["attacker"] != "none" and row["exposed"] == "0":
            assert row["asr"] == ""


def test_cells_of_one_seed_meet_the_same_episodes(run: RunConfig, tmp_path: Path) -> None:
    """Comparisons along a row or a column are paired: task and seed are the same in every cell."""
    crossplay(run, tmp_path)
    keys: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for episode in _played(tmp_path):
        pair = (episode.agent.version, episode.attacker.version if episode.attacker else "none")
        keys.setdefault(pair, []).append((episode.task, episode.seed))
    first, *others = [sorted(k) for k in keys.values()]
    assert len(set(first)) > 12
    assert all(other == first for other in others)


def test_stopped_crossplay_goes_on_cell_by_cell(
    run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells that are there are not played again; the table is that of a run in one go."""
    rollout, calls = Driver.rollout, 0

    async def counted(self: Driver, *args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return await rollout(self, *args, **kwargs)  # type: ignore[arg-type]

    whole = crossplay(run, tmp_path / "whole").read_text()
    monkeypatch.setattr(Driver, "rollout", counted)
    with pytest.raises(KeyboardInterrupt):
        crossplay(run, tmp_path / "stopped")
    assert len(list((tmp_path / "stopped" / "cells").glob("*/cell.json"))) == 4
    assert crossplay(run, tmp_path / "stopped").read_text() == whole
    assert calls == 5 + 8
    monkeypatch.setattr(evaluate, "engine", None)  # a third call needs no engine at all
    assert crossplay(run, tmp_path / "stopped").read_text() == whole


@pytest.mark.parametrize("content", [None, "", "{}", '{"errors": 0, "attacker": "base"}'])
def test_damaged_cell_is_played_again_or_named(
    content: str | None, run: RunConfig, tmp_path: Path
) -> None:
    """A cell without its record is played again; one with a damaged record is named with the way out."""
    config = replace(run, eval=replace(run.eval, agents=["rl-2"], attackers=["none"], seeds=[0]))
    whole = crossplay(config, tmp_path).read_text()
    (cell,) = (tmp_path / "cells").glob("*/cell.json")
    if content is None:
        cell.unlink()
    else:
        cell.write_text(content)
        with pytest.raises(CheckpointError, match=r"delete .* to play this cell again"):
            crossplay(config, tmp_path)
        shutil.rmtree(cell.parent)
    assert crossplay(config, tmp_path).read_text() == whole


def test_damaged_adapter_takes_no_part(run: RunConfig, tmp_path: Path) -> None:
    """Cross-play checks a stage's files as resuming does."""
    copy = tmp_path / "run"
    shutil.copytree(run.run_dir, copy)
    path = Bundles(copy).folder(2) / "agent" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\x80\x3f")
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors is damaged"):
        crossplay(replace(run, run_dir=str(copy)), tmp_path / "out")


def test_two_crossplays_do_not_share_a_folder(run: RunConfig, tmp_path: Path) -> None:
    """The second is refused in one line instead of both crashing."""
    with locked(tmp_path), pytest.raises(ConfigurationError, match="in use by another process"):
        crossplay(run, tmp_path)


def test_unknown_policy_names_what_there_is(run: RunConfig, tmp_path: Path) -> None:
    """A typing error in a stage is found before anything is played."""
    config = replace(run, eval=replace(run.eval, agents=["rl-99"]))
    with pytest.raises(ConfigurationError, match=r"no policy rl-99 .* offers base, rl-1, rl-2"):
        crossplay(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_policies_of_another_run_take_part(run: RunConfig, tmp_path: Path) -> None:
    """RUN_DIR:STAGE and an adapter's folder name policies, and play as themselves."""
    other = f"{run.run_dir}:rl-2"
    folder = str(Path(run.run_dir) / "iterations" / "0002" / "agent")
    config = replace(
        run,
        eval=replace(run.eval, agents=["rl-2", other, folder], attackers=["none"], seeds=[0]),
    )
    rows = _rows(crossplay(config, tmp_path))
    assert [r["agent"] for r in rows] == ["rl-2", other, folder]
    assert len({r["successes"] for r in rows}) == 1


def test_no_tasks_in_the_split_is_an_error(run: RunConfig, tmp_path: Path) -> None:
    """The matrix world has no unseen tasks: the message says which split is empty."""
    config = replace(run, eval=replace(run.eval, split="eval"))
    with pytest.raises(ConfigurationError, match="eval split"):
        crossplay(config, tmp_path)


def test_saved_config_evaluates_a_run(run: RunConfig, tmp_path: Path) -> None:
    """The config beside a run is enough to evaluate it, as scripts/crossplay.py does."""
    config = typed(plain(run))
    assert _rows(crossplay(config, tmp_path))


# --- demonstrations -------------------------------------------------------------------------------


def _episode(**changes: object) -> Episode:
    base = Episode(
        task="t",
        seed=0,
        index=0,
        learner=None,
        attacker=PolicyRef(Seat.ATTACKER, "a"),
        agent=PolicyRef(Seat.AGENT, "b"),
        outcome=Outcome.LEAK,
        verdict=Verdict(exposed=True),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_demonstrations_are_filtered_by_seat() -> None:
    """Each seat keeps what it won; the rest is counted by reason."""
    episodes = [
        _episode(),
        _episode(outcome=Outcome.SUCCESS),
        _episode(outcome=Outcome.FAILURE),
        _episode(verdict=Verdict(exposed=False)),
        _episode(attacker=None, outcome=Outcome.SUCCESS),
    ]
    kept, counts = filtered(episodes, Seat.ATTACKER)
    assert kept == episodes[:1]
    assert counts == {"kept": 1, "success": 1, "failure": 1, "not exposed": 1, "no attack": 1}
    kept, counts = filtered(episodes, Seat.AGENT)
    assert kept == [episodes[1], episodes[4]]
    assert counts == {"leak": 2, "kept": 2, "failure": 1}


def test_damaged_chunk_is_not_taken_for_demonstrations(tmp_path: Path) -> None:
    """A chunk with fewer episodes than planned is named, not trained on."""
    config = _collecting(tmp_path)
    collect(config, tmp_path / "demos")
    for content in ("", "{", "[]\n"):
        (tmp_path / "demos" / "episodes-0001.jsonl").write_text(content)
        with pytest.raises(CheckpointError, match=r"episodes-0001\.jsonl is damaged .*delete it"):
            collect(config, tmp_path / "demos")


def _collecting(run_dir: Path, *overrides: str) -> RunConfig:
    return matrix_run(
        run_dir,
        "collect.agent=base",
        "collect.attacker=base",
        "collect.episodes=48",
        "collect.chunk=16",
        *overrides,
    )


def test_collection_resumes_by_chunk(tmp_path: Path) -> None:
    """A chunk that is there is kept, a missing one is played again to the same episodes."""
    config = _collecting(tmp_path)
    out = tmp_path / "demos"
    first = collect(config, out)
    assert len(first) == 48
    (out / "episodes-0001.jsonl").unlink()
    stamp = (out / "episodes-0000.jsonl").stat().st_mtime_ns
    again = collect(config, out)
    assert (out / "episodes-0000.jsonl").stat().st_mtime_ns == stamp
    assert [e.segments for e in again] == [e.segments for e in first]
    with pytest.raises(ConfigurationError, match="another config"):
        collect(_collecting(tmp_path, "seed=7"), out)


def test_warm_start_raises_the_likelihood_of_what_was_won(tmp_path: Path) -> None:
    """Both seats' adapters are written once, with counts; the loss falls; a second call trains nothing."""
    config = _collecting(tmp_path, "sft.lr=1e-2", "sft.batch_size=8", "sft.epochs=20", "sft.beta=0")
    episodes = collect(config, tmp_path / "demos")
    init = warm_start(config, episodes, tmp_path / "sft")
    for seat in Seat:
        folder = Path(getattr(init, seat))
        record = json.loads((folder / "sft.json").read_text())
        assert record["demonstrations"]["kept"] > 0
        assert (folder / "adapter_model.safetensors").is_file()
    stamp = (tmp_path / "sft" / "agent" / "sft.json").stat().st_mtime_ns
    assert warm_start(config, episodes, tmp_path / "sft") == init
    assert (tmp_path / "sft" / "agent" / "sft.json").stat().st_mtime_ns == stamp


def test_warm_start_of_other_settings_is_refused(tmp_path: Path) -> None:
    """Adapters that are there are reused only for the settings and demonstrations that made them."""
    config = _collecting(tmp_path, "sft.max_steps=1", "sft.batch_size=4")
    episodes = collect(config, tmp_path / "demos")
    warm_start(config, episodes, tmp_path / "sft")
    with pytest.raises(ConfigurationError, match="made with other settings"):
        warm_start(replace(config, sft=replace(config.sft, lr=0.5)), episodes, tmp_path / "sft")
    again = filtered(episodes, Seat.AGENT)[0][0]
    with pytest.raises(ConfigurationError, match="made with other settings"):
        warm_start(config, [*episodes, again], tmp_path / "sft")


def test_failed_cells_and_chunks_are_not_saved(
    run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the engine dies, what was not played is missing afterwards, and the first fault is shown."""

    async def broken(self: HFPolicy, request: Request) -> Completion:
        raise PolicyError("the engine is gone")

    monkeypatch.setattr(HFPolicy, "complete", broken)
    with pytest.raises(ArlasError, match="the engine is gone"):
        crossplay(run, tmp_path / "cross")
    assert not list((tmp_path / "cross").glob("cells/*/cell.json"))
    with pytest.raises(ArlasError, match="the engine is gone"):
        collect(_collecting(tmp_path), tmp_path / "demos")
    assert not list((tmp_path / "demos").glob("episodes*"))


def test_first_stage_is_called_by_what_it_is(run: RunConfig, tmp_path: Path) -> None:
    """Iteration 0 is ``sft`` only if the run started from adapters."""
    start = Path(run.run_dir) / "iterations" / "0002"
    config = matrix_run(tmp_path, *(f"init.{s}={start / s}" for s in Seat), "algo.lr=3e-2")
    train(config)
    found = evaluate.entrant(Seat.AGENT, "sft", tmp_path, ())
    assert found.folder == tmp_path / "iterations" / "0000" / "agent"
    with pytest.raises(ConfigurationError, match="no policy sft"):
        evaluate.entrant(Seat.AGENT, "sft", Path(run.run_dir), ())


def test_warm_start_without_a_won_episode_says_so(tmp_path: Path) -> None:
    """A seat that never won has nothing to imitate: the counts are in the message."""
    config = _collecting(tmp_path)
    with pytest.raises(ConfigurationError, match=r"no demonstration was won by the agent.*leak"):
        warm_start(config, [_episode()], tmp_path / "sft")
    assert not (tmp_path / "sft").exists()
