"""Checks every task of the enterprise world: ``python scripts/check_tasks.py [--suite NAME] [--seeds N] [PATTERN …]``.

Prints what is wrong with any task, and as its last line one JSON object of counts. Exit code 1 if a task failed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys

from _entry import entry
from tqdm import tqdm

from envs.enterprise.checks import faults
from envs.enterprise.overlap import overlaps
from envs.enterprise.tasks.catalog import SUITES, catalog, split_of
from envs.enterprise.tasks.spec import Kind


@entry
def main() -> None:
    """Tries every task with every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of tasks, e.g. 'slack.*'")
    parser.add_argument("--suite", choices=list(SUITES), help="one suite only")
    parser.add_argument("--seeds", type=int, default=2, help="workspaces tried for each task")
    asked = parser.parse_args()
    suites = [asked.suite] if asked.suite else list(SUITES)
    names = [n for n, (s, _) in catalog().items() if s.name in suites]
    names = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in asked.patterns)]
    failed = 0
    for name in tqdm(names, unit="task", mininterval=1.0, disable=None):
        wrong = [
            f"seed {seed}: {fault}" for seed in range(asked.seeds) for fault in faults(name, seed)
        ]
        failed += bool(wrong)
        for line in wrong:
            tqdm.write(f"{name}: {line}")
    for line in overlaps(names):
        failed += 1
        print(line)
    print(json.dumps(counts(names) | {"failed": failed}))
    sys.exit(1 if failed or not names else 0)


def counts(names: list[str]) -> dict[str, int]:
    """How many tasks of each kind, and how many tools."""
    tasks = [catalog()[n] for n in names]
    attacks = [n for n, (_, t) in zip(names, tasks, strict=True) if t.kind is Kind.ATTACK]
    office = [n for n in attacks if catalog()[n][0].name == "office"]
    tools = {t.name for suite, _ in tasks for a in suite.apps.values() for t in a.tools}
    return {
        "train": sum(split_of(n) == "train" for n in office),
        "validation": sum(split_of(n) == "eval" for n in office),
        "ood": len(attacks) - len(office),
        "benign": sum(t.kind is Kind.BENIGN for _, t in tasks),
        "malicious": sum(t.kind is Kind.MALICIOUS for _, t in tasks),
        "tools": len(tools),
    }


if __name__ == "__main__":
    main()
