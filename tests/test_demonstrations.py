"""Folders of demonstrations and the warm start made of them: what is kept, continued, refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from support import matrix_run

from arlas.collect import collect, demonstrations, filtered, read_folder
from arlas.config import RunConfig
from arlas.fingerprint import fingerprint
from arlas.types import CheckpointError, ConfigurationError, Seat
from arlas.warmstart import warm_start

FIRST = ("lr", "batch_size", "beta", "epochs", "max_steps", "eval_share", "micro_batch_tokens")


def _config(run_dir: Path, *overrides: str) -> RunConfig:
    return matrix_run(
        run_dir,
        "collect.agent=base",
        "collect.attacker=base",
        "collect.episodes=48",
        "collect.chunk=16",
        *overrides,
    )


def test_the_curve_lies_beside_the_adapter(tmp_path: Path) -> None:
    """A row a step with the training loss, held-out figures where they were measured, the best step in sft.json."""
    config = _config(
        tmp_path,
        "collect.episodes=256",
        "sft.lr=1e-2",
        "sft.batch_size=2",
        "sft.epochs=2",
        "sft.eval_share=0.4",
        "sft.eval_every=2",
    )
    init = warm_start(config, demonstrations(config), tmp_path / "sft")
    for seat in Seat:
        folder = Path(getattr(init, seat))
        rows = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
        assert [r["step"] for r in rows] == list(range(len(rows)))
        assert all({"loss", "nll", "kl"} <= set(r) for r in rows[1:])
        measured = {r["step"]: r["eval_loss"] for r in rows if "eval_loss" in r}
        assert {s for s in measured if s % 2 == 0} == set(range(0, len(rows), 2))
        metrics = json.loads((folder / "sft.json").read_text())["metrics"]
        assert metrics["eval_loss"] == measured[metrics["best_step"]] == min(measured.values())


def test_adapters_from_before_the_later_switches_are_still_known(tmp_path: Path) -> None:
    """Switches that are off do not change what a warm start is known by; switched on they do."""
    config = _config(tmp_path, "sft.max_steps=1")
    episodes = collect(config, tmp_path / "demos")
    warm_start(config, episodes, tmp_path / "sft")
    sft = dataclasses.asdict(config.sft)
    for seat in Seat:
        shown = "\n".join(e.to_json() for e in filtered(episodes, seat)[0])
        known = fingerprint(
            {
                "warm_start": {name: sft[name] for name in (*FIRST, "seed")},
                "lora": dataclasses.asdict(config.lora),
                "model": "tiny-llama-words",
                "seed": config.seed,
                "demonstrations": hashlib.sha256(shown.encode()).hexdigest(),
            }
        )
        record = json.loads((tmp_path / "sft" / seat / "sft.json").read_text())
        assert record["key"] == known
    named = dataclasses.replace(config.sft, demos=str(tmp_path / "demos"))
    elsewhere = dataclasses.replace(config, sft=named)
    warm_start(elsewhere, demonstrations(elsewhere), tmp_path / "sft")
    packed = dataclasses.replace(config, sft=dataclasses.replace(config.sft, packing=True))
    with pytest.raises(ConfigurationError, match="made with other settings"):
        warm_start(packed, episodes, tmp_path / "sft")


def test_folders_that_are_not_whole_are_not_imitated(tmp_path: Path) -> None:
    """A missing chunk, at the end or between, a damaged one, a damaged mark, and no folder at all."""
    config = _config(tmp_path)
    out = tmp_path / "demos"
    episodes = collect(config, out)
    assert read_folder(out) == episodes
    last = (out / "episodes-0002.jsonl").read_text()
    (out / "episodes-0002.jsonl").unlink()
    with pytest.raises(ConfigurationError, match="holds 2 of 3 chunks"):
        read_folder(out)
    (out / "episodes-0002.jsonl").write_text(last)
    (out / "episodes-0001.jsonl").rename(out / "kept")
    mark = (out / "collect.json").read_text()
    old = {"config": json.loads(mark)["config"]}  # before the mark said how many there are
    (out / "collect.json").write_text(json.dumps(old))
    with pytest.raises(ConfigurationError, match="not whole"):
        read_folder(out)
    (out / "kept").rename(out / "episodes-0001.jsonl")
    assert read_folder(out) == episodes
    assert collect(config, out) == episodes
    whole = (out / "episodes-0001.jsonl").read_text()
    for lost in (whole[: whole.rindex("\n", 0, -1) + 1], whole[:-40], ""):
        (out / "episodes-0001.jsonl").write_text(lost)
        with pytest.raises(CheckpointError, match=r"episodes-0001\.jsonl is damaged .* instead of"):
            read_folder(out)
    (out / "episodes-0001.jsonl").write_text('{"task": 1}\n' * whole.count("\n"))
    with pytest.raises(CheckpointError, match=r"episodes-0001\.jsonl is damaged"):
        read_folder(out)
    for mark in ("[]", '{"config": "x", "chunks": "2"}', '{"config": "x", "episodes": 3}'):
        (out / "collect.json").write_text(mark)
        with pytest.raises(CheckpointError, match=r"collect\.json is damaged"):
            read_folder(out)
    with pytest.raises(ConfigurationError, match="holds no demonstrations"):
        read_folder(tmp_path / "nowhere")
