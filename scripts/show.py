"""Prints saved episodes: ``python scripts/show.py RUN_DIR/iterations/0002 [--outcome leak] [--replay]``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from _entry import entry

from analysis.episodes import SavedEpisodes
from arlas.build import driver, load_run, model_name, part, typed
from arlas.policies.models import load_tokenizer
from arlas.replay import Recorded, replay
from arlas.text import line, plain
from arlas.types import ConfigurationError, Episode


def show(episode: Episode) -> str:
    """A transcript for a terminal; everything that models wrote is stripped of control characters."""
    attacker = episode.attacker.version if episode.attacker else "no attacker"
    head = (
        f"=== {line(episode.task)}, seed {episode.seed}, #{episode.index}: "
        f"{line(attacker)} against {line(episode.agent.version)}\n    task: {line(episode.goal)}"
    )
    turns = [
        f"--- step {t.step + 1}, {t.seat}\n{_indent(t.observation)}\n  reply: {line(t.text)}"
        + (f"\n  error: {line(t.error)}" if t.error else "")
        for t in episode.turns
    ]
    outcome = line(episode.error or "") if not episode.ok else str(episode.outcome)
    rewards = ", ".join(f"{seat} {value:+.2f}" for seat, value in episode.rewards.items())
    leaked = f", leaked {', '.join(episode.leaked)}" if episode.leaked else ""
    return "\n".join([head, *turns, f"=== {outcome}{leaked}; rewards: {rewards or 'none'}\n"])


def _indent(text: str) -> str:
    return "\n".join(f"  | {row}" for row in plain(text).split("\n"))


def run_of(path: Path) -> Path:
    """The run folder that a file or folder lies in. Raises `ConfigurationError` if there is none."""
    for folder in (path, *path.resolve().parents):
        if (folder / "config.yaml").is_file():
            return folder
    raise ConfigurationError(f"{path} lies in no run folder")


async def check(run_dir: Path, episodes: Sequence[Episode]) -> int:
    """Plays the episodes again and returns how many came out as saved."""
    config = typed(load_run(run_dir))
    worlds = part(config.env, "env").open()
    tokenizer = load_tokenizer(model_name(config))
    same = 0
    try:
        for episode in episodes:
            games = driver(config, Recorded(tokenizer, episode), worlds)
            again = await replay(episode, games)
            agree = (again.outcome, again.rewards) == (episode.outcome, episode.rewards)
            same += agree
            print(f"{'same' if agree else 'DIFFERENT'}: {again.outcome} {line(again.error or '')}")
    finally:
        await worlds.close()
    return same


@entry
def main() -> None:
    """Prints transcripts; with ``--replay`` plays them again and says whether the outcome is the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="a folder with episodes*.jsonl below it")
    outcomes = ["leak", "success", "failure", "error"]
    parser.add_argument("--outcome", choices=outcomes, help="only episodes that ended so")
    parser.add_argument("--limit", type=int, default=3, help="at most so many (default: 3)")
    parser.add_argument("--replay", action="store_true", help="play them again and compare")
    args = parser.parse_args()
    if not args.path.is_dir():
        raise ConfigurationError(f"{args.path} is no folder")
    every = [
        e
        for _, e in SavedEpisodes(args.path)
        if args.outcome in (None, "error" if not e.ok else str(e.outcome))
    ]
    found = every[: max(0, args.limit)]
    for episode in found:
        print(show(episode))
    print(f"{len(found)} of {len(every)} episodes shown")
    if args.replay:
        usable = [e for e in found if e.ok]
        same = asyncio.run(check(run_of(args.path), usable))
        print(f"{same} of {len(usable)} episodes came out as saved")


if __name__ == "__main__":
    main()
