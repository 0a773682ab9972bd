"""Paired differences between stages."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.trends import over_agents, over_attackers, paired, read_cells, trends_markdown
from arlas.types import Episode, Outcome, PolicyRef, Seat, Verdict

ROOT = Path(__file__).resolve().parents[2]


def cell(folder, attacker, agent, seed, outcomes, exposed=True):
    """A played cell; ``outcomes`` by task, one episode each with its own seed."""
    path = folder / "cells" / f"{attacker}-{agent}-{seed}"
    path.mkdir(parents=True)
    (path / "cell.json").write_text(
        json.dumps({"attacker": attacker, "agent": agent, "seed": seed})
    )
    ref = None if attacker == "none" else PolicyRef(Seat.ATTACKER, attacker)
    with (path / "episodes.jsonl").open("w") as file:
        for number, (task, outcome) in enumerate(outcomes):
            episode = Episode(
                task,
                number,
                0,
                None,
                ref,
                PolicyRef(Seat.AGENT, agent),
                verdict=Verdict(exposed=exposed),
                outcome=outcome,
            )
            file.write(episode.to_json() + "\n")


def outcomes(leaks, tasks=5, each=8, seed=0):
    """Episodes of some tasks, ``leaks`` of which leak."""
    found = [(f"t{i % tasks}", Outcome.SUCCESS) for i in range(tasks * each)]
    for i in random.Random(seed).sample(range(len(found)), leaks):
        found[i] = (found[i][0], Outcome.LEAK)
    return found


def test_the_change_is_the_mean_of_paired_differences(tmp_path):
    """Counts, change and interval agree with a bootstrap over tasks written out in a loop."""
    cell(tmp_path, "sft", "sft", 0, outcomes(20, seed=1))
    cell(tmp_path, "sft", "rl-5", 0, outcomes(6, seed=2))
    cells = read_cells([tmp_path])
    (found,) = over_agents(cells.leaks, cells.attackers, cells.agents)
    assert (found.names, found.first, found.last) == (("sft", "rl-5"), (20, 40), (6, 40))
    pairs = [(f"t{i % 5}", x[1] is Outcome.LEAK, y[1] is Outcome.LEAK)
             for i, (x, y) in enumerate(zip(outcomes(20, seed=1), outcomes(6, seed=2), strict=True))]  # fmt: skip
    by_task = {t: [b - a for name, a, b in pairs if name == t] for t, _, _ in pairs}
    rng = np.random.default_rng(5)
    means = []
    for _ in range(4000):
        drawn = [by_task[f"t{k}"] for k in rng.integers(5, size=5)]
        means.append(np.mean([d for task in drawn for d in task]))
    change, low, high = found.change
    assert change == pytest.approx(-14 / 40)
    assert (low, high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.03)


def test_only_episodes_that_saw_the_attack_on_both_sides_count(tmp_path):
    """An attack that was not seen by one of the two is no pair; without an attack all are."""
    cell(tmp_path, "sft", "sft", 0, outcomes(3))
    cell(tmp_path, "sft", "rl-5", 0, outcomes(3), exposed=False)
    cell(tmp_path, "none", "sft", 0, outcomes(2), exposed=False)
    cell(tmp_path, "none", "rl-5", 0, outcomes(0), exposed=False)
    cells = read_cells([tmp_path])
    (found,) = over_agents(cells.leaks, cells.attackers, cells.agents)
    assert (found.opponent, found.first, found.last) == ("none", (2, 40), (0, 40))


def test_seeds_are_pooled_and_columns_leave_no_attack_out(tmp_path):
    """Two folders make one table; a column compares attackers alone."""
    for seed, folder in enumerate((tmp_path / "a", tmp_path / "b")):
        for attacker, leaks in (("none", 0), ("sft", 4), ("rl-5", 9)):
            cell(folder, attacker, "sft", seed, outcomes(leaks, seed=seed))
    cells = read_cells([tmp_path / "a", tmp_path / "b"])
    (found,) = over_attackers(cells.leaks, cells.attackers, cells.agents)
    assert (found.names, found.first, found.last) == (("sft", "rl-5"), (8, 80), (18, 80))


def test_nothing_in_common_is_no_pair():
    """Two cells of other episodes cannot be compared."""
    assert paired("x", ("a", "b"), {(0, "t", 1): True}, {(0, "t", 2): True}) is None


def test_the_script_writes_what_it_prints(tmp_path):
    """Names from elsewhere are escaped; a folder without cells and a cell that is there twice are refused."""
    for agent in ("sft", "rl-5"):
        cell(tmp_path / "a", "x|<b>", agent, 0, outcomes(3))
    command = [
        sys.executable,
        "scripts/trends.py",
        str(tmp_path / "a"),
        "--out",
        str(tmp_path / "t.md"),
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told = (tmp_path / "t.md").read_text()
    assert (
        told.strip() == ran.stdout.strip() == trends_markdown(read_cells([tmp_path / "a"])).strip()
    )
    assert "<b>" not in told
    for wrong, complaint in (
        ((tmp_path,), "no cells"),
        ((tmp_path / "a", tmp_path / "a"), "twice"),
    ):
        with pytest.raises(ValueError, match=complaint):
            read_cells(wrong)
