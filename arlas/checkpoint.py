"""One atomic bundle an iteration, and the run folder that holds them.

::

    runs/NAME/
      config.yaml            what the run was started with
      metrics.jsonl          one line an iteration
      iterations/0003/       a bundle: everything needed to continue after iteration 3
        agent/ attacker/     adapters (safetensors)
        learner/             optimizers and random states (only in the newest bundles)
        episodes.jsonl       what was played in this iteration
        state.json           counters, population
        MANIFEST.json        digest of every file

A bundle is written aside and renamed once (invariant 10), so a folder of that name is always whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arlas.types import CheckpointError, ConfigurationError

MANIFEST = "MANIFEST.json"
ADAPTER = "adapter_model.safetensors"
"""The weights in a PEFT adapter's folder."""


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def written_aside(target: Path, replace: bool = False) -> Iterator[Path]:
    """A fresh folder that becomes ``target`` when the block ends well, and vanishes when it does not.

    With ``replace`` a folder that is there, and that its reader did not find whole, gives way.
    """
    aside = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        for path in [*aside.rglob("*"), aside]:
            _sync(path)
        if replace and target.is_dir():
            shutil.rmtree(target)
        os.replace(aside, target)
        _sync(target.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, text: str) -> None:
    """Writes a small text file aside and renames it."""
    aside = path.with_name(f".{path.name}.tmp")
    try:
        aside.write_text(text, encoding="utf-8")
        _sync(aside)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps a folder for this process. Raises `ConfigurationError` if another one has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(f"{folder} is in use by another process") from None
        yield


class Bundles:
    """The bundles of one run folder."""

    def __init__(self, run_dir: Path) -> None:
        self.root = run_dir / "iterations"

    def folder(self, iteration: int) -> Path:
        """Where the bundle of an iteration lies, or will lie."""
        return self.root / f"{iteration:04d}"

    def iterations(self) -> list[int]:
        """Iterations that have a bundle, in order."""
        if not self.root.is_dir():
            return []
        return sorted(int(p.name) for p in self.root.iterdir() if p.name.isdecimal())

    @contextlib.contextmanager
    def write(self, iteration: int, state: dict[str, Any]) -> Iterator[Path]:
        """Yields a folder to put files in; ``state`` and the manifest are added as it becomes a bundle."""
        self.root.mkdir(parents=True, exist_ok=True)
        with written_aside(self.folder(iteration)) as aside:
            yield aside
            (aside / "state.json").write_text(json.dumps(state, indent=1, sort_keys=True), "utf-8")
            files = sorted(p for p in aside.rglob("*") if p.is_file())
            manifest = {p.relative_to(aside).as_posix(): digest(p) for p in files}
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")

    def read(self, iteration: int, newest: bool = True) -> dict[str, Any]:
        """A bundle's state, after every file of it has been checked.

        Raises `CheckpointError` naming the damaged file and what to do.
        """
        folder = self.folder(iteration)
        remedy = (
            f"delete {folder} to continue from the bundle before it"
            if newest
            else "an older bundle is part of the run (its attacker is in the population): restore the file "
            "from a copy, or start in a new run folder"
        )
        try:
            self._verify(iteration, remedy)
            state: dict[str, Any] = json.loads((folder / "state.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(
                f"the bundle {folder} cannot be read ({error}); {remedy}"
            ) from error
        return state

    def adapter(self, iteration: int, seat: str) -> Path:
        """The folder of a seat's adapter, checked. Raises `CheckpointError` if it is damaged."""
        remedy = "restore it from a copy, or leave this stage out"
        try:
            self._verify(iteration, remedy, f"{seat}/")
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(
                f"the bundle {self.folder(iteration)} cannot be read ({error}); {remedy}"
            ) from error
        return self.folder(iteration) / seat

    def _verify(self, iteration: int, remedy: str, prefix: str = "") -> None:
        for name, expected in self._manifest(iteration).items():
            path = self.folder(iteration) / name
            if not name.startswith(prefix):
                continue
            if not path.is_file():
                raise CheckpointError(f"{path} is missing; {remedy}")
            if digest(path) != expected:
                raise CheckpointError(f"{path} is damaged (its digest differs); {remedy}")

    def _manifest(self, iteration: int) -> dict[str, str]:
        path = self.folder(iteration) / MANIFEST
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict) or "state.json" not in found:
            raise ValueError(f"{path.name} does not list state.json")
        return found

    def forget_learner(self, before: int) -> None:
        """Deletes the optimizers of bundles older than ``before``; their adapters stay."""
        for iteration in self.iterations():
            if iteration >= before or not (self.folder(iteration) / "learner").is_dir():
                continue
            folder = self.folder(iteration)
            try:
                manifest = self._manifest(iteration)
            except ValueError:
                continue  # damaged: left as it is for `read` to report
            kept = {k: v for k, v in manifest.items() if not k.startswith("learner/")}
            write_file(folder / MANIFEST, json.dumps(kept, indent=1))
            shutil.rmtree(folder / "learner", ignore_errors=True)
