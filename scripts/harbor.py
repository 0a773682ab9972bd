"""Harbor task packages: ``python scripts/harbor.py export [PATTERN …] --out DIR`` and ``… run FOLDER``.

``export`` writes one task folder for each task and seed, and as its last line one JSON object. ``run`` prints the
verdict over a folder as JSON: of its reference solution, or of a journal of calls.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from pathlib import Path
from typing import Any

from _entry import entry
from tqdm import tqdm

from arlas.types import ConfigurationError
from envs.base import UnknownTaskError
from envs.enterprise.container.grade import rewards
from envs.enterprise.foreign import play, read
from envs.enterprise.harbor import HarborError, export, load, read_toml, slug, verdict_of
from envs.enterprise.tasks.catalog import SUITES, catalog
from envs.enterprise.tasks.spec import Kind


@entry
def main() -> None:
    """Exports or runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    out = commands.add_parser("export", help="writes Harbor task folders")
    out.add_argument("patterns", nargs="*", default=["*"], help="names of tasks, e.g. 'slack.*'")
    out.add_argument("--suite", choices=list(SUITES), help="one suite only")
    out.add_argument("--seeds", type=int, default=1, help="workspaces for each task")
    out.add_argument("--out", type=Path, required=True, help="where the folders go")
    out.add_argument("--attack", type=Path, help="a file with the outsider's text")
    run = commands.add_parser("run", help="prints the verdict over a task folder")
    run.add_argument("folder", type=Path)
    run.add_argument("--journal", type=Path, help="calls.jsonl; the reference solution without it")
    run.add_argument("--script", type=Path, help="shell commands, for a folder that others wrote")
    asked = parser.parse_args()
    try:
        told = exported(asked) if asked.command == "export" else ran(asked)
    except (HarborError, UnknownTaskError) as error:
        raise ConfigurationError(str(error)) from error
    print(json.dumps(told))


def exported(asked: argparse.Namespace) -> dict[str, Any]:
    """Writes the folders. An outsider's text stands in tasks that are attacked, not in benign and malicious ones."""
    try:
        attack = asked.attack.read_text(encoding="utf-8") if asked.attack else ""
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{asked.attack} is no text in UTF-8") from error
    suites = [asked.suite] if asked.suite else list(SUITES)
    names = [n for n, (s, _) in catalog().items() if s.name in suites]
    names = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in asked.patterns)]
    if not names:
        raise ConfigurationError(f"no task is called {' or '.join(asked.patterns)}")
    if asked.seeds < 1:
        raise ConfigurationError(f"--seeds must be at least 1, got {asked.seeds}")
    for name in tqdm(names, unit="task", mininterval=1.0, disable=None):
        text = attack if catalog()[name][1].kind is Kind.ATTACK else ""
        for seed in range(asked.seeds):
            export(name, seed, asked.out / slug(name, seed), text)
    return {
        "exported": len(names) * asked.seeds,
        "tasks": len(names),
        "seeds": asked.seeds,
        "out": str(asked.out),
    }


def ran(asked: argparse.Namespace) -> dict[str, Any]:
    """The verdict over one folder."""
    if "arlas" not in (read_toml(asked.folder).get("metadata") or {}):
        if asked.journal:
            raise ConfigurationError("--journal is for folders exported from here: use --script")
        task = read(asked.folder)
        script = asked.script.read_text(encoding="utf-8") if asked.script else None
        return {"instruction": task.instruction, **play(task, script)}
    if asked.script:
        raise ConfigurationError("--script is for folders that others wrote: use --journal")
    about = load(asked.folder)
    verdict = verdict_of(about, asked.journal)
    return {"task": about.task, "seed": about.seed, **rewards(verdict), **dict(verdict.details)}


if __name__ == "__main__":
    main()
