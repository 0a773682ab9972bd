"""Cross-play and demonstrations on the matrix world."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support import composed, matrix_run

from analysis.crossplay import read_crossplay
from analysis.scores import read_cases, scores
from arlas import evaluate
from arlas.build import driver, part, plain, typed
from arlas.checkpoint import Bundles, locked
from arlas.collect import collect, filtered
from arlas.config import RunConfig
from arlas.evaluate import cells_of, crossplay
from arlas.fingerprint import fingerprint
from arlas.policies.hf import HFPolicy
from arlas.policies.models import load_tokenizer
from arlas.replay import Recorded, replay
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
    clipped = replace(config, algo=replace(config.algo, max_grad_norm=0.1))
    with pytest.raises(ConfigurationError, match="made with other settings"):
        warm_start(clipped, episodes, tmp_path / "sft")
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


# --- runtime layers -------------------------------------------------------------------------------------


def _enterprise(run_dir: Path, *overrides: str) -> RunConfig:
    """An evaluation of the scripted agent that believes everything, in a workspace."""
    return composed(
        "env=enterprise",
        "policy=tiny",
        "logger=quiet",
        "+teacher@teachers.scripted=enterprise",
        "teachers.scripted.obey=1.0",
        "env.train=[slack.password_reminder/permission.invite]",
        "env.eval=[slack.password_reminder/lookalike.direct]",
        "game.injection.placement=dom",
        "game.max_prompt_tokens=100000",
        "sampling.max_tokens=2000",
        "eval.agents=[scripted]",
        "eval.attackers=[none,scripted]",
        "eval.episodes=4",
        "eval.seeds=[0]",
        f"run_dir={run_dir}",
        *overrides,
    )


GUARDS = ["none", "permissions", "filter", "approval", "all"]


def test_one_command_shows_the_agent_alone_and_behind_each_layer(tmp_path: Path) -> None:
    """Cells of all layers play the same episodes; the table says what came of it and how many calls were stopped."""
    config = _enterprise(tmp_path, f"eval.guards=[{','.join(GUARDS)}]")
    rows = {(r["attacker"], r["guard"]): r for r in _rows(crossplay(config))}
    assert [guard for attacker, guard in rows if attacker == "none"] == GUARDS
    fooled = {g: (int(r["leaks"]), int(r["stopped"])) for (a, g), r in rows.items() if a != "none"}
    stopped, passed = (0, 4), (4, 0)
    assert fooled == dict(zip(GUARDS, [passed, stopped, passed, passed, stopped], strict=True))
    assert all(r["successes"] == "4" for (a, _), r in rows.items() if a == "none")
    episodes = _played(tmp_path / "crossplay")
    keys = {g: sorted((e.task, e.seed) for e in episodes if e.guard == g) for g in GUARDS}
    assert len(keys["none"]) == 8
    assert all(k == keys["none"] for k in keys.values())
    assert read_crossplay(tmp_path / "crossplay" / "crossplay.csv")[-1].player == "scripted + all"
    score = {
        (s.guard, s.part, s.name, s.measure): s
        for s in scores(read_cases([tmp_path / "crossplay"])[0])
        if s.attacker == "scripted"
    }
    assert score["none", "app", "slack", "asr"].value == 1.0
    assert score["permissions", "all", "macro", "joint"].value == 1.0
    assert score["all", "all", "micro", "stopped_permissions"].hits == 4


def test_cells_without_layers_are_those_from_before(tmp_path: Path) -> None:
    """An evaluation from before there were layers is not played again, though the run trained behind some."""
    names = []
    for overrides in ((), ("guard=filter",), ("game.guard.secrets=[card]",)):
        cells = cells_of(_enterprise(tmp_path, *overrides), tmp_path)
        names.append([c.folder for c in cells])
        assert all(c.config.game.guard.layers == () for c in cells)
    config = _enterprise(tmp_path)
    bare = dataclasses.asdict(config)
    del bare["game"]["guard"]
    assert fingerprint(bare) == fingerprint(dataclasses.asdict(config))
    assert names[0] == names[1] == names[2]
    behind = cells_of(_enterprise(tmp_path, "eval.guards=[none,filter]"), tmp_path)
    assert [c.folder for c in behind][:2] == names[0]
    assert len({c.folder for c in behind}) == 4


def test_an_old_cell_and_an_old_table_are_read(tmp_path: Path) -> None:
    """Neither knew of layers."""
    config = _enterprise(tmp_path, "eval.attackers=[none]")
    path = crossplay(config)
    (cell,) = (tmp_path / "crossplay" / "cells").glob("*/cell.json")
    record = json.loads(cell.read_text())
    old = {k: v for k, v in record.items() if k not in ("guard", "stopped")}
    cell.write_text(json.dumps(old))
    text = crossplay(config).read_text()
    rows = read_crossplay(path)
    path.write_text("".join(x.rsplit(",", 2)[0] + "\n" for x in text.splitlines()))
    assert "guard" not in path.read_text()
    assert read_crossplay(path) == rows


@pytest.mark.parametrize("guards", ["[]", "[none,none]", "[firewall]"])
def test_unknown_layers_are_refused(guards: str, tmp_path: Path) -> None:
    """Before anything is played, with the key or the choices."""
    with pytest.raises(ConfigurationError, match=r"eval.guards|choose none, all, or some of"):
        _enterprise(tmp_path, f"eval.guards={guards}")


def test_layers_need_tool_calls(tmp_path: Path) -> None:
    """A game of words has none to look at: refused before anything is played."""
    config = matrix_run(
        tmp_path, "eval.agents=[base]", "eval.attackers=[none]", "eval.guards=[none,filter]"
    )
    with pytest.raises(ConfigurationError, match=r"game\.reply=word has none"):
        crossplay(config, tmp_path)


def test_a_guarded_episode_replays_behind_its_layers(tmp_path: Path) -> None:
    """The saved episode says which layers were on; the driver of the run need not."""
    config = _enterprise(tmp_path, "eval.attackers=[scripted]", "eval.guards=[permissions]")
    crossplay(config)
    saved = _played(tmp_path / "crossplay")[0]
    assert saved.stops

    async def again() -> Episode:
        worlds = part(config.env, "env").open()
        recorded = Recorded(load_tokenizer("tiny-llama"), saved)
        try:
            return await replay(saved, driver(config, recorded, worlds, 0.0))
        finally:
            await worlds.close()

    played = asyncio.run(again())
    assert (played.outcome, played.rewards) == (saved.outcome, saved.rewards)
    assert [t.stopped for t in played.turns] == [t.stopped for t in saved.turns]
