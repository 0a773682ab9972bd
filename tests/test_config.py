"""Configs: contradictions die early and clearly, and a saved config is the config."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes import ROOT

from arlas.build import load_run, part, plain, tasks_of, typed
from arlas.checkpoint import Bundles
from arlas.choices import Draw, Placement, ReplyFormat
from arlas.config import AlgoConfig, LoggerConfig, RunConfig
from arlas.fingerprint import differences, fingerprint
from arlas.rundir import MetricLog, RunDir, finite
from arlas.types import ConfigurationError, Seat

BASE: dict[str, Any] = {
    "env": {"_target_": "envs.matrix.MatrixConfig", "game": "hidden"},
    "policy": {"_target_": "arlas.policies.hf.HFConfig", "model": "tiny-llama"},
}


def merged(changes: dict[str, Any], base: dict[str, Any] = BASE) -> dict[str, Any]:
    """A copy of the base with dotted keys set."""
    found = copy.deepcopy(base)
    for key, value in changes.items():
        *path, last = key.split(".")
        into = found
        for name in path:
            into = into.setdefault(name, {})
        into[last] = value
    return found


CONTRADICTIONS = [
    ({"sampling.top_p": 0.9}, "sampling.top_p, top_k, min_p and repetition_penalty must be"),
    ({"sampling.top_k": 20}, "while training"),
    ({"sampling.min_p": 0.1}, "while training"),
    ({"sampling.repetition_penalty": 1.1}, "while training"),
    ({"sampling.temperature": 0.0}, "sampling.temperature must lie in [0.01, 100] while training"),
    ({"sampling.temperature": -1.0}, "sampling.temperature"),
    ({"sampling.temperature": float("inf")}, "sampling.temperature"),
    ({"sampling.max_tokens": 0}, "sampling.max_tokens must be at least 1"),
    ({"algo.group_size": 1}, "a group of one has no baseline"),
    ({"algo.groups": 0}, "algo.groups"),
    ({"algo.iterations": 0}, "algo.iterations"),
    ({"algo.seats": []}, "algo.seats must name at least one"),
    ({"algo.seats": ["agent", "agent"]}, "names a seat twice"),
    ({"algo.lr": 0.0}, "algo.lr"),
    ({"algo.lr": float("nan")}, "algo.lr"),
    ({"algo.eps_low": 1.0}, "algo.eps_low"),
    ({"algo.eps_high": 0.0}, "algo.eps_high"),
    ({"algo.beta": -0.1}, "algo.beta"),
    ({"algo.kl_estimator": "k9"}, "k1, k2, k3"),
    ({"algo.aggregation": "mean"}, "token_mean, sequence_mean or constant"),
    ({"algo.mixed_precision": "fp8"}, "no or bf16"),
    ({"algo.importance_cap": 0.5}, "algo.importance_cap"),
    ({"algo.episode_retries": -1}, "algo.episode_retries"),
    ({"algo.max_error_share": 1.5}, "algo.max_error_share"),
    ({"game.attack": False}, "game.attack=false leaves the attacker nothing to learn"),
    ({"game.max_steps": 0}, "game.max_steps"),
    ({"game.max_observation_chars": -5}, "game.max_observation_chars"),
    ({"game.max_prompt_tokens": 0}, "game.max_prompt_tokens"),
    ({"game.injection.max_chars": 0}, "game.injection.max_chars"),
    ({"game.leak.min_chars": 1}, "game.leak.min_chars below 3 would fire on any text"),
    ({"game.leak.min_word": 1}, "game.leak.min_word below 3"),
    ({"game.leak.min_share": 0.0}, "game.leak.min_share"),
    ({"game.user_fields": ["name", "shoe_size"]}, "unknown shoe_size; choose from name, "),
    ({"lora.rank": 0}, "lora.rank"),
    ({"lora.dropout": 0.1}, "lora.dropout must be 0"),
    ({"population.size": -1}, "population.size"),
    ({"population.half_life": 0.0}, "population.half_life"),
    ({"population.loaded": 0}, "population.loaded"),
    ({"eval.split": "test"}, "eval.split must be train or eval"),
    ({"eval.episodes": 0}, "eval.episodes"),
    ({"eval.seeds": []}, "eval.seeds"),
    ({"eval.seeds": [0, 0]}, "eval.seeds names something twice"),
    ({"eval.agents": []}, "eval.agents is empty"),
    ({"eval.temperature": -1.0}, "eval.temperature"),
    ({"algo.max_grad_norm": -1.0}, "algo.max_grad_norm must be above 0"),
    ({"algo.max_grad_norm": 0.0}, "algo.max_grad_norm must be above 0"),
    ({"algo.max_grad_norm": math.nan}, "algo.max_grad_norm must be a finite number"),
    ({"algo.weight_decay": -1.0}, "algo.weight_decay"),
    ({"algo.lr": 1e30}, "algo.lr"),
    ({"algo.dtype": "int8"}, "algo.dtype"),
    ({"algo.engine_tolerance": -1.0}, "algo.engine_tolerance"),
    ({"reward.leak.agent": math.inf}, "reward.leak.agent must be a finite number"),
    ({"lora.alpha": 0}, "lora.alpha"),
    # shaping and baselines
    ({"algo.baseline": "moving"}, "set algo.normalize_std=false"),
    ({"algo.baseline": "leave_one_out"}, "set algo.normalize_std=false"),
    ({"algo.baseline": "best"}, "[group, leave_one_out, moving]"),
    ({"algo.baseline_per_task": True}, "algo.baseline_per_task needs algo.baseline=moving"),
    ({"algo.baseline_decay": 1.0}, "algo.baseline_decay must lie in [0, 1)"),
    ({"algo.refill": -1}, "algo.refill must not be negative"),
    (
        {"algo.refill": 4, "algo.baseline": "moving", "algo.normalize_std": False},
        "flat groups teach too",
    ),
    ({"algo.importance_level": "sequence", "algo.importance_cap": 0.0}, "switches them off"),
    ({"algo.importance_bound": "mask", "algo.importance_cap": 0.0}, "switches them off"),
    ({"algo.importance_bound": "mask", "algo.importance_cap": 1.0}, "mask every token"),
    ({"shaping.length": "both"}, "[none, group, overlong]"),
    ({"shaping.length": "group", "sampling.max_tokens": 1}, "all replies are equally long"),
    ({"shaping.length": "overlong", "sampling.max_tokens": 1}, "all replies are equally long"),
    ({"shaping.length": "group", "shaping.length_weight": 0.0}, "shaping.length_weight"),
    ({"shaping.warmup": 3}, "but shaping.length is none"),
    ({"shaping.ramp": 3}, "but shaping.length is none"),
    ({"shaping.length": "group", "shaping.length_weight": 1e300}, "shaping.length_weight"),
    (
        {"shaping.length": "group", "shaping.seats": ["agent"], "shaping.good_above.attacker": 0.5},
        "shaping.seats leaves the attacker out",
    ),
    ({"rephrase.out": "."}, "rephrase.out"),
    ({"shaping.length": "group", "shaping.warmup": -1}, "must not be negative"),
    ({"shaping.good_above.agent": 0.5}, "belongs to shaping.length=group"),
    ({"shaping.length": "group", "shaping.good_above.agent": 1.0}, "leaves no episode good"),
    ({"shaping.length": "group", "shaping.good_above.attacker": -2.0}, "or none bad"),
    (
        {"shaping.length": "group", "reward.failure.agent": 1.0, "reward.leak.agent": 1.0},
        "gives the agent 1 whatever happens",
    ),
    ({"shaping.overlong_max": 50}, "belong to shaping.length=overlong"),
    ({"shaping.length": "overlong", "shaping.overlong_cache": 0}, "must lie in [1, overlong_max"),
    ({"shaping.length": "overlong", "shaping.overlong_cache": 300}, "overlong_max=256"),
    ({"shaping.length": "overlong", "shaping.overlong_max": 999}, "is ever punished"),
    ({"shaping.repetition": "tokens", "sampling.max_tokens": 40}, "lower shaping.ngram"),
    ({"shaping.repetition": "scalar", "shaping.ngram": 256}, "lower shaping.ngram"),
    ({"shaping.ngram": 0}, "shaping.ngram must be at least 1"),
    ({"shaping.repetition_token": -0.05}, "they are taken off"),
    ({"shaping.repetition": "tokens", "shaping.seats": []}, "punishes no seat that learns"),
    (
        {"shaping.length": "group", "shaping.seats": ["attacker"], "algo.seats": ["agent"]},
        "punishes no seat that learns",
    ),
    ({"shaping.seats": ["agent", "agent"]}, "names a seat twice"),
    ({"lora.targets": []}, "lora.targets is empty"),
    ({"population.pfsp_power": 1e10}, "population.pfsp_power"),
    ({"threads": -1}, "threads"),
    ({"seed": -1}, "seed"),
    ({"sft.max_steps": -1}, "sft.max_steps"),
    ({"game.user_fields": ["name", "name"]}, "names a field twice"),
    ({"teachers": {"rl-3": {}}}, "teachers.rl-3"),
    ({"env": None}, "choose env="),
    ({"policy": None}, "choose policy="),
    # what is no value or no key at all, with the key and the choices
    ({"game.injektion": 1}, "game.injektion"),
    ({"foo": 1}, "foo"),
    ({"sampling.temprature": 1.0}, "sampling.temprature"),
    ({"algo.lr": "fast"}, "algo.lr"),
    ({"game.injection.placement": "nowhere"}, "game.injection.placement"),
    ({"game.injection.placement": "nowhere"}, "expected one of [random_line, end, dom]"),
    ({"algo.seats": ["agnt"]}, "expected one of [attacker, agent]"),
    ({"population.draw": "best"}, "[uniform, latest, recency, pfsp]"),
    ({"game": 3}, "GameConfig"),
]


@pytest.mark.parametrize(
    ("changes", "told"), CONTRADICTIONS, ids=[f"{c[0]} {c[1][:20]}" for c in CONTRADICTIONS]
)
def test_contradictions_are_refused_with_the_key(changes: dict[str, Any], told: str) -> None:
    """One line that names the key and what would be right; nothing else is raised."""
    with pytest.raises(ConfigurationError) as caught:
        typed(merged(changes))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_are_the_paper_s() -> None:
    """The table of SPEC section 3, L = 5 and the population."""
    config = typed(BASE)
    algo = config.algo
    assert (algo.groups, algo.group_size, algo.batch_size, algo.lr) == (128, 16, 128, 2e-6)
    assert (algo.beta, algo.eps_low, algo.eps_high, algo.iterations) == (0.05, 0.1, 0.3, 15)
    assert (config.lora.rank, config.lora.alpha, config.game.max_steps) == (128, 256, 5)
    sampling = config.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.2, 1.0, 0)
    assert (config.population.draw, config.population.per.value) == (Draw.UNIFORM, "group")
    assert config.game.injection.placement is Placement.RANDOM_LINE


def test_no_attack_trains_the_agent_alone() -> None:
    """game.attack=false is fine once only the agent learns."""
    config = typed(merged({"game.attack": False, "algo.seats": ["agent"]}))
    assert config.algo.seats == [Seat.AGENT]


@pytest.mark.parametrize("spelling", ["word", "WORD"])
def test_choices_are_written_in_either_case(spelling: str) -> None:
    """People write lower case, Python's names work too."""
    assert typed(merged({"game.reply": spelling})).game.reply is ReplyFormat.WORD


def test_saved_configs_read_back_and_are_written_in_lower_case() -> None:
    """typed → plain → YAML → typed changes nothing, and choices are saved as people write them."""
    config = typed(
        merged({"game.injection.placement": "dom", "algo.seats": ["agent"], "game.user_fields": []})
    )
    saved = plain(config)
    assert saved["game"]["injection"]["placement"] == "dom"
    assert saved["algo"]["seats"] == ["agent"]
    again = yaml.safe_load(yaml.safe_dump(saved))
    assert again == saved
    assert typed(again) == config
    assert plain(typed(again)) == saved
    assert fingerprint(plain(typed(again))) == fingerprint(saved)


def test_fingerprint_ignores_what_does_not_change_a_result() -> None:
    """Free keys and a longer run keep it; every other key changes it."""
    base = plain(typed(BASE))
    free = {
        "run_dir": "elsewhere",
        "resume": "never",
        "threads": 3,
        "name": "other",
        "objective": "x",
        "logger.tensorboard": False,
        "eval.episodes": 3,
        "algo.iterations": 99,
    }
    for key, value in free.items():
        changed = merged({key: value}, base)
        assert fingerprint(changed) == fingerprint(base), key
        assert differences(base, changed) == [], key
    deciding = {
        "seed": 1,
        "algo.lr": 1e-3,
        "env.game": "observed",
        "game.leak.scope": "response",
        "population.draw": "latest",
        "policy.model": "tiny-qwen3",
        "teachers.scripted": {"_target_": "x"},
    }
    for key, value in deciding.items():
        changed = merged({key: value}, base)
        assert fingerprint(changed) != fingerprint(base), key
        assert differences(base, changed)[0].startswith(key), key


def test_switches_that_came_later_change_no_older_run() -> None:
    """A saved config without them is the same run as long as they are off, and another once they are on."""
    new = plain(typed(BASE))
    old = copy.deepcopy(new)
    del old["shaping"]
    later = [
        *("baseline", "baseline_decay", "baseline_per_task", "refill"),
        *("importance_level", "importance_bound"),
    ]
    for name in later:
        del old["algo"][name]
    assert fingerprint(old) == fingerprint(new)
    assert differences(old, new) == []
    assert typed(old) == typed(new)
    for key, value in (("algo.refill", 3), ("shaping.ngram", 5), ("shaping.length", "group")):
        changed = merged({key: value}, new)
        assert fingerprint(changed) != fingerprint(old)
        assert [d.partition(":")[0] for d in differences(old, changed)] == [key]


def test_parts_are_built_and_their_errors_name_the_group() -> None:
    """A wrong class, field or value under env= or policy= is a `ConfigurationError`."""
    env = part({"_target_": "envs.matrix.MatrixConfig", "game": "hidden"}, "env")
    assert tasks_of(env).train == ("hidden",)
    for spec, told in (
        ("matrix", "env: expected a mapping with _target_"),
        ({"game": "hidden"}, "env: expected a mapping with _target_"),
        ({"_target_": "envs.nowhere.Config"}, "env: "),
        ({"_target_": "envs.matrix.MatrixConfig", "colour": 1}, "colour"),
        ({"_target_": "envs.matrix.MatrixConfig", "game": "chess"}, "chess"),
        ({"_target_": "envs.matrix.MatrixConfig", "capacity": 0}, "env.capacity"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            part(spec, "env")


def test_overlapping_or_unknown_tasks_are_configuration_errors() -> None:
    """What an env says of its tasks is told before any work."""
    from envs.base import TaskSplit, UnknownTaskError

    class Overlap:
        def tasks(self) -> TaskSplit:
            return TaskSplit(("a",), ("a",))

    class Unknown(Overlap):
        def tasks(self) -> TaskSplit:
            raise UnknownTaskError("no task click-nothing")

    with pytest.raises(ConfigurationError, match=r"env: tasks in both .*: a"):
        tasks_of(Overlap())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="env: no task click-nothing"):
        tasks_of(Unknown())  # type: ignore[arg-type]


# --- run folders ------------------------------------------------------------------------------------------


def run_config(folder: Path, **changes: Any) -> RunConfig:
    return typed(merged({"run_dir": str(folder), **changes}))


def bundle(folder: Path) -> None:
    with Bundles(folder).write(0, {"iteration": 0}):
        pass


def test_a_run_folder_remembers_its_config(tmp_path: Path) -> None:
    """Opened again with the same config, and with free keys changed; refused with others, which are named."""
    RunDir(run_config(tmp_path)).close()
    bundle(tmp_path)
    RunDir(run_config(tmp_path)).close()
    RunDir(run_config(tmp_path, **{"algo.iterations": 99, "logger.progress": False})).close()
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        RunDir(run_config(tmp_path, **{"algo.lr": 0.5, "game.reply": "word"}))
    for told in ("choose another run_dir", "algo.lr: 2e-06 → 0.5", "game.reply: 'tagged' → 'word'"):
        assert told in str(caught.value)
    assert (tmp_path / "config.yaml").read_bytes() == before
    assert load_run(tmp_path)["algo"]["iterations"] == 99


def test_a_folder_without_bundles_may_change_its_config(tmp_path: Path) -> None:
    """A run that died before its first bundle binds nobody."""
    RunDir(run_config(tmp_path)).close()
    RunDir(run_config(tmp_path, **{"algo.lr": 0.5})).close()
    assert load_run(tmp_path)["algo"]["lr"] == 0.5


def test_resume_never_refuses_a_folder_that_holds_a_run(tmp_path: Path) -> None:
    """An empty folder is fine, one with bundles is not."""
    RunDir(run_config(tmp_path, resume="never")).close()
    bundle(tmp_path)
    with pytest.raises(ConfigurationError, match=r"already holds a run and resume=never"):
        RunDir(run_config(tmp_path, resume="never"))
    RunDir(run_config(tmp_path)).close()


def test_two_processes_in_one_folder_are_refused(tmp_path: Path) -> None:
    """The second is told so, in this process or another; a killed holder frees the folder."""
    script = textwrap.dedent(
        f"""
        import sys
        sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
        from pathlib import Path
        from test_config import RunDir, run_config
        held = RunDir(run_config(Path({str(tmp_path)!r})))
        print("held", flush=True)
        sys.stdin.read()
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(ConfigurationError, match="is in use by another process"):
        RunDir(run_config(tmp_path))
    os.kill(process.pid, 9)
    process.wait()
    process.stdout.close()
    process.stdin.close()
    mine = RunDir(run_config(tmp_path))
    with pytest.raises(ConfigurationError, match="is in use by another process"):
        RunDir(run_config(tmp_path))
    mine.close()
    mine.close()


def test_no_run_folder_is_said_so(tmp_path: Path) -> None:
    """Reading a folder that is none, or whose config is none."""
    with pytest.raises(ConfigurationError, match="is no run folder"):
        load_run(tmp_path)
    (tmp_path / "config.yaml").write_text("just words")
    with pytest.raises(ConfigurationError, match="holds no config"):
        load_run(tmp_path)


def test_metrics_are_rewritten_from_the_bundles(tmp_path: Path) -> None:
    """After a kill between two writes each iteration has one line; NaN is null."""
    quiet = LoggerConfig(tensorboard=False)
    log = MetricLog(tmp_path, quiet, "x", [])
    log.write({"iteration": 1, "a": float("nan")})
    log.write({"iteration": 2, "a": 1.0})
    log.close()
    again = MetricLog(tmp_path, quiet, "x", [{"iteration": 1, "a": None}])
    again.write({"iteration": 2, "a": 2.0})
    again.close()
    assert (tmp_path / "metrics.jsonl").read_text().splitlines() == [
        '{"iteration": 1, "a": null}',
        '{"iteration": 2, "a": 2.0}',
    ]
    assert finite({"x": float("inf"), "y": 1, "z": "s"}) == {"x": None, "y": 1, "z": "s"}


def test_own_payoff_tables_are_typed() -> None:
    """A user's table needs only the rows it changes."""
    config = typed(merged({"reward.failure.agent": -0.5}))
    assert (config.reward.failure.agent, config.reward.failure.attacker) == (-0.5, -1.0)
    assert AlgoConfig().seats == [Seat.AGENT, Seat.ATTACKER]
