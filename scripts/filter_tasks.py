"""Training tasks that a policy solves often enough: ``python scripts/filter_tasks.py env=web +by=scripted``.

Plays every training task without attack and prints a list for ``env.train=…`` (the paper: tasks that
the teacher solves more than 20 % of the time).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import hydra
from _entry import entry
from omegaconf import DictConfig, open_dict

from arlas.build import part, register, tasks_of, typed
from arlas.checkpoint import write_file
from arlas.collect import collect
from arlas.config import CollectConfig
from arlas.types import Outcome
from envs.tasks import filter_tasks

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@entry
def main(config: DictConfig) -> None:
    """``+by=`` names the policy, ``+each=`` the episodes a task, ``+threshold=`` the least share."""
    with open_dict(config):
        by = config.pop("by", "base")
        each, threshold = int(config.pop("each", 8)), float(config.pop("threshold", 0.2))
    run = typed(config)
    tasks = tasks_of(part(run.env, "env")).train
    run = dataclasses.replace(
        run,
        collect=CollectConfig(by, by, episodes=each * len(tasks), attacked_share=0.0),
    )
    out = Path(run.run_dir) / f"rates-{by}"
    played, won = Counter[str](), Counter[str]()
    for episode in collect(run, out):
        played[episode.task] += episode.ok
        won[episode.task] += episode.outcome is Outcome.SUCCESS
    rates = {t: (won[t], played[t]) for t in tasks if played[t]}
    for task, (successes, episodes) in sorted(rates.items(), key=lambda x: -x[1][0] / x[1][1]):
        print(f"{successes / episodes:4.0%} of {episodes:3d}  {task}")
    kept = filter_tasks(rates, threshold)
    write_file(out / "tasks.txt", "\n".join(kept) + "\n")
    print(f"{len(kept)} of {len(tasks)} tasks above {threshold:.0%}: env.train=[{','.join(kept)}]")


if __name__ == "__main__":
    main()
