"""Demonstrations: teachers play the game, and each seat's won episodes are kept (ARLAS, section 3.2)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tqdm import tqdm

from arlas.build import check_placement, driver, engine, part, tasks_of
from arlas.checkpoint import locked, write_file
from arlas.config import RunConfig
from arlas.evaluate import Entrant, entrant
from arlas.fingerprint import fingerprint
from arlas.metrics import check_faults
from arlas.policies.base import Policy
from arlas.rollout import Driver, GroupSpec
from arlas.seeding import derive
from arlas.types import CheckpointError, ConfigurationError, Episode, Outcome, Seat
from envs.base import EnvConfig, Worlds


def won(episode: Episode, seat: Seat) -> str | None:
    """None if the seat reached its goal in this episode, else the reason why it is dropped."""
    if not episode.ok:
        return "error"
    if seat is Seat.AGENT:
        return None if episode.outcome is Outcome.SUCCESS else str(episode.outcome)
    if episode.attacker is None:
        return "no attack"
    if not episode.verdict.exposed:
        return "not exposed"
    return None if episode.outcome is Outcome.LEAK else str(episode.outcome)


def filtered(episodes: Iterable[Episode], seat: Seat) -> tuple[list[Episode], dict[str, int]]:
    """The episodes that a seat won, and how many were kept and dropped for what reason."""
    kept: list[Episode] = []
    counts: Counter[str] = Counter()
    for episode in episodes:
        reason = won(episode, seat)
        counts[reason or "kept"] += 1
        if reason is None:
            kept.append(episode)
    return kept, dict(counts)


def collect(config: RunConfig, out: Path) -> list[Episode]:
    """Plays what is missing of ``collect.episodes`` episodes on the training tasks; returns them all.

    Chunks lie in ``out`` as whole files. Raises `ConfigurationError` before anything is played if a
    teacher is unknown or ``out`` holds the demonstrations of another config.
    """
    teachers = tuple(config.teachers)
    agent = entrant(Seat.AGENT, config.collect.agent, Path(config.run_dir), teachers)
    attacker = entrant(Seat.ATTACKER, config.collect.attacker, Path(config.run_dir), teachers)
    env = part(config.env, "env")
    check_placement(config, env)
    specs = plan(config, tasks_of(env).train, agent, attacker)
    with locked(out):
        return _collected(config, env, specs, agent, attacker, out)


def _collected(
    config: RunConfig,
    env: EnvConfig,
    specs: list[GroupSpec],
    agent: Entrant,
    attacker: Entrant,
    out: Path,
) -> list[Episode]:
    _check_config(config, out)
    chunks = [
        specs[i : i + config.collect.chunk] for i in range(0, len(specs), config.collect.chunk)
    ]
    missing = [i for i in range(len(chunks)) if not _file(out, i).is_file()]
    if missing:
        worlds = env.open()
        policy: Policy | None = None
        try:
            policy = engine(config)
            games = driver(config, policy, worlds)
            for who in (agent, attacker):
                if who.folder is not None and who.ref.adapter is not None:
                    policy.load_adapter(who.ref.adapter, who.folder)
            asyncio.run(_play(config, games, worlds, {i: chunks[i] for i in missing}, out))
        finally:
            if policy is not None:
                policy.close()
            asyncio.run(worlds.close())
    return [e for i, specs in enumerate(chunks) for e in read(_file(out, i), len(specs))]


def plan(
    config: RunConfig, tasks: Sequence[str], agent: Entrant, attacker: Entrant
) -> list[GroupSpec]:
    """All episodes, each a group of its own."""
    if not tasks:
        raise ConfigurationError("env: there are no training tasks")
    rng = random.Random(derive(config.seed, "collect"))
    specs = []
    for i in range(config.collect.episodes):
        attacked = config.game.attack and rng.random() < config.collect.attacked_share
        specs.append(
            GroupSpec(
                task=tasks[i % len(tasks)],
                seed=rng.getrandbits(31),
                learner=None,
                agent=agent.ref,
                attackers=(attacker.ref,) if attacked else (),
                size=1,
            )
        )
    return specs


def read(path: Path, expected: int) -> list[Episode]:
    """The episodes of one chunk. Raises `CheckpointError` if they are damaged or not ``expected``."""
    try:
        with path.open(encoding="utf-8") as file:
            episodes = [Episode.from_json(line) for line in file]
        if len(episodes) != expected:
            raise ValueError(f"{len(episodes)} episodes instead of {expected}")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); delete it to play it again") from error
    return episodes


async def _play(
    config: RunConfig,
    games: Driver,
    worlds: Worlds,
    chunks: dict[int, list[GroupSpec]],
    out: Path,
) -> None:
    total = sum(map(len, chunks.values()))
    try:
        with tqdm(
            total=total, unit="episode", desc="demonstrations", disable=not config.logger.progress
        ) as bar:
            for i, specs in chunks.items():
                groups = await games.rollout(
                    specs, derive(config.seed, "collect"), lambda _: bar.update()
                )
                check_faults([e for g in groups for e in g.episodes], config.algo.max_error_share)
                lines = [e.to_json() + "\n" for g in groups for e in g.episodes]
                write_file(_file(out, i), "".join(lines))
    finally:
        await worlds.close()


def _file(out: Path, chunk: int) -> Path:
    return out / f"episodes-{chunk:04d}.jsonl"


def _check_config(config: RunConfig, out: Path) -> None:
    plain = dataclasses.asdict(config)
    kept = {
        k: plain[k] for k in ("seed", "env", "game", "teachers", "policy", "collect", "sampling")
    }
    mark = out / "collect.json"
    key = fingerprint({"demonstrations": kept})
    try:
        known = json.loads(mark.read_text("utf-8"))["config"] if mark.is_file() else None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{mark} is damaged ({error!r}); delete {out} to start over"
        ) from error
    if known != key and (known is not None or _file(out, 0).exists()):
        raise ConfigurationError(
            f"{out} holds demonstrations of another config; delete it or choose another folder"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_file(mark, json.dumps({"config": key}))
