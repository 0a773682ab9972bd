"""Bundles: whole or not there at all, and damage is found."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import ROOT

from arlas.checkpoint import MANIFEST, Bundles, digest, write_file, written_aside
from arlas.types import CheckpointError


def write(bundles: Bundles, iteration: int, size: int = 1000) -> None:
    with bundles.write(iteration, {"iteration": iteration}) as aside:
        (aside / "agent").mkdir()
        (aside / "agent" / "adapter.bin").write_bytes(bytes([iteration]) * size)
        (aside / "learner").mkdir()
        (aside / "learner" / "optimizer.bin").write_bytes(b"o" * size)
        (aside / "episodes.jsonl").write_text("{}\n")


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_invariant_10_a_bundle_is_written_aside_and_renamed(tmp_path: Path) -> None:
    """Nothing stands under the final name until all of it is there; then all of it does."""
    bundles = Bundles(tmp_path)
    assert bundles.iterations() == []
    with bundles.write(3, {"iteration": 3, "x": [1]}) as aside:
        (aside / "a.txt").write_text("a")
        assert not bundles.folder(3).exists()
        assert bundles.iterations() == []
    assert bundles.iterations() == [3]
    assert bundles.read(3) == {"iteration": 3, "x": [1]}
    assert files(bundles.root) == ["0003/MANIFEST.json", "0003/a.txt", "0003/state.json"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_invariant_10_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    """An error or Ctrl-C while a bundle is written: no folder, no leftovers, older bundles whole."""
    bundles = Bundles(tmp_path)
    write(bundles, 1)

    def fail() -> None:
        with bundles.write(2, {}) as aside:
            (aside / "half.bin").write_bytes(b"x")
            raise error

    with pytest.raises(error):
        fail()
    with pytest.raises(TypeError), bundles.write(2, {"not": object()}):
        pass
    assert bundles.iterations() == [1]
    assert [p.name for p in bundles.root.iterdir()] == ["0001"]
    assert bundles.read(1) == {"iteration": 1}


_WRITER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from arlas.checkpoint import Bundles
bundles = Bundles(Path({folder!r}))
for i in range(1, 10_000):
    with bundles.write(i, {{"iteration": i}}) as aside:
        for k in range(6):
            (aside / f"{{k}}.bin").write_bytes(bytes([i % 256]) * 200_000)
    print(i, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.006, 0.01, 0.02])
def test_invariant_10_kill_9_leaves_only_whole_bundles(tmp_path: Path, delay: float) -> None:
    """A process killed at any moment of its writing: every bundle that is there reads whole, and writing goes on."""
    script = textwrap.dedent(_WRITER).format(root=str(ROOT), folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    time.sleep(delay)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    bundles = Bundles(tmp_path)
    found = bundles.iterations()
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= 3
    for iteration in found:
        assert bundles.read(iteration) == {"iteration": iteration}
    write(bundles, found[-1] + 1)
    assert bundles.read(found[-1] + 1) == {"iteration": found[-1] + 1}
    assert not (bundles.root / f".{found[-1] + 1:04d}.tmp").exists()


def test_invariant_10_a_full_disk_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No space left, when a file is written or when it is flushed: the error is shown, the last bundle stays the last."""
    bundles = Bundles(tmp_path)
    write(bundles, 1)
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(*_: Any, **__: Any) -> None:
        raise full

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail)
            with pytest.raises(OSError, match="No space left"):
                write(bundles, 2)
            with pytest.raises(OSError, match="No space left"):
                write_file(tmp_path / "config.yaml", "x")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", fail)
        with pytest.raises(OSError, match="No space left"):
            write(bundles, 2)
    assert bundles.iterations() == [1]
    assert files(tmp_path) == [f"iterations/0001/{f}" for f in files(bundles.folder(1))]
    assert bundles.read(1) == {"iteration": 1}


@pytest.mark.parametrize(
    "damage", ["flip", "cut", "gone", "state", "manifest", "no manifest", "empty manifest", "list"]
)
def test_invariant_10_damage_is_found_and_the_remedy_named(tmp_path: Path, damage: str) -> None:
    """Whatever happened to a file, reading names it and says what to do."""
    bundles = Bundles(tmp_path)
    write(bundles, 1)
    folder = bundles.folder(1)
    path = folder / "agent" / "adapter.bin"
    expected = r"agent/adapter\.bin is damaged"
    if damage == "flip":
        data = bytearray(path.read_bytes())
        data[500] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "gone":
        path.unlink()
        expected = r"agent/adapter\.bin is missing"
    elif damage == "state":
        (folder / "state.json").write_text('{"iteration": 2}')
        expected = r"state\.json is damaged"
    else:
        expected = "cannot be read"
        manifest = folder / MANIFEST
        text = {"manifest": manifest.read_text()[:-9], "empty manifest": "{}", "list": "[1]"}
        manifest.unlink() if damage == "no manifest" else manifest.write_text(text[damage])
    with pytest.raises(CheckpointError, match=expected) as caught:
        bundles.read(1)
    assert f"delete {folder} to continue from the bundle before it" in str(caught.value)


def test_old_optimizers_are_forgotten_and_their_bundles_stay_whole(tmp_path: Path) -> None:
    """Adapters and episodes stay; the manifest no longer lists what is gone; damage elsewhere does not stop it."""
    bundles = Bundles(tmp_path)
    for iteration in (1, 2, 3, 4):
        write(bundles, iteration)
    (bundles.folder(1) / MANIFEST).write_text("{")
    bundles.forget_learner(before=4)
    bundles.forget_learner(before=4)
    assert [(bundles.folder(i) / "learner").is_dir() for i in (1, 2, 3, 4)] == [
        True,
        False,
        False,
        True,
    ]
    for iteration in (2, 3, 4):
        assert bundles.read(iteration) == {"iteration": iteration}
        assert (bundles.folder(iteration) / "agent" / "adapter.bin").is_file()


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    """A bundle that is there stays as it is."""
    bundles = Bundles(tmp_path)
    write(bundles, 1)
    before = json.loads((bundles.folder(1) / MANIFEST).read_text())
    with pytest.raises(OSError):
        write(bundles, 1, size=5)
    assert json.loads((bundles.folder(1) / MANIFEST).read_text()) == before
    bundles.read(1)


def test_other_names_are_no_bundles(tmp_path: Path) -> None:
    """Leftovers and strangers in the folder are ignored; a leftover is replaced."""
    bundles = Bundles(tmp_path)
    write(bundles, 12)
    (bundles.root / ".0013.tmp").mkdir()
    (bundles.root / ".0013.tmp" / "old").write_text("x")
    (bundles.root / "notes").mkdir()
    assert bundles.iterations() == [12]
    write(bundles, 13)
    assert "old" not in files(bundles.folder(13))


def test_written_aside_and_digest(tmp_path: Path) -> None:
    """A folder appears whole; the digest is SHA-256."""
    with written_aside(tmp_path / "made") as aside:
        (aside / "f").write_bytes(b"abc")
    assert files(tmp_path) == ["made/f"]
    assert digest(tmp_path / "made" / "f") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
