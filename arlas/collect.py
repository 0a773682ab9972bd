"""Demonstrations: teachers play the game, and each seat's won episodes are kept (ARLAS, section 3.2)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from arlas.build import check_placement, driver, engine, part, tasks_of
from arlas.checkpoint import ADAPTER, digest, locked, write_file
from arlas.config import RunConfig
from arlas.evaluate import Entrant, entrant
from arlas.fingerprint import fingerprint
from arlas.metrics import check_faults
from arlas.policies.base import Policy
from arlas.rollout import Driver, GroupSpec
from arlas.seeding import derive
from arlas.types import CheckpointError, ConfigurationError, Episode, Outcome, Seat
from envs.base import EnvConfig, Worlds

_MARK = "collect.json"


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

    Chunks lie in ``out`` as whole files, and ``counts.json`` beside them says what each seat keeps and why the
    rest is dropped. Raises `ConfigurationError` before anything is played if a
    teacher is unknown or ``out`` holds the demonstrations of another config.
    """
    teachers = tuple(config.teachers)
    agent = entrant(Seat.AGENT, config.collect.agent, Path(config.run_dir), teachers)
    attacker = entrant(Seat.ATTACKER, config.collect.attacker, Path(config.run_dir), teachers)
    env = part(config.env, "env")
    check_placement(config, env)
    specs = plan(config, tasks_of(env).train, agent, attacker)
    with locked(out):
        episodes = _collected(config, env, specs, agent, attacker, out)
        counts = {seat.value: filtered(episodes, seat)[1] for seat in Seat}
        write_file(out / "counts.json", json.dumps(counts, indent=1))
        return episodes


def demonstrations(config: RunConfig) -> list[Episode]:
    """What the warm start learns from: the episodes of ``sft.demos``, else those of the run folder's ``demos``,
    which are collected if they are missing."""
    if config.sft.demos is None:
        return collect(config, Path(config.run_dir) / "demos")
    return read_folder(folder_of(config, config.sft.demos))


def folder_of(config: RunConfig, name: str) -> Path:
    """A folder of demonstrations by its path, as it is or within the run folder."""
    within = Path(config.run_dir) / name
    return within if within.is_dir() else Path(name)


def read_folder(folder: Path) -> list[Episode]:
    """All episodes of a folder of demonstrations.

    Raises `ConfigurationError` if the folder is none or not whole, `CheckpointError` on a damaged file.
    """
    return [e for path in chunk_files(folder) for e in read(path)]


def chunk_files(folder: Path) -> list[Path]:
    """The chunks of a folder of demonstrations in order.

    Raises `ConfigurationError` if one is missing, `CheckpointError` if one has lost episodes.
    """
    found = sorted(folder.glob("episodes-*.jsonl"))
    if not found:
        raise ConfigurationError(f"{folder} holds no demonstrations (episodes-*.jsonl)")
    mark = _mark(folder)
    wanted = mark.get("chunks", len(found))
    if found != [_file(folder, i) for i in range(wanted)]:
        raise ConfigurationError(
            f"{folder} is not whole: it holds {len(found)} of {wanted} chunks; finish it with the command "
            "that began it"
        )
    # Folders of before have no "episodes" in their mark.
    for path, episodes in zip(found, mark.get("episodes", ()), strict=False):
        if (there := lines(path)) != episodes:
            raise CheckpointError(
                f"{path} is damaged ({there} episodes instead of {episodes}); delete it and finish the folder "
                "with the command that began it"
            )
    return found


def lines(path: Path) -> int:
    """How many whole lines a file holds."""
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)


def _collected(
    config: RunConfig,
    env: EnvConfig,
    specs: list[GroupSpec],
    agent: Entrant,
    attacker: Entrant,
    out: Path,
) -> list[Episode]:
    adapters = {seat.value: who.folder for seat, who in zip(Seat, (attacker, agent), strict=True)}
    chunks = [
        specs[i : i + config.collect.chunk] for i in range(0, len(specs), config.collect.chunk)
    ]
    key = _key(config, {k: f for k, f in adapters.items() if f is not None})
    check_mark(out, key, [len(c) for c in chunks])
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


def read(path: Path, expected: int | None = None) -> list[Episode]:
    """The episodes of one chunk. Raises `CheckpointError` if they are damaged or not as many as expected."""
    try:
        with path.open(encoding="utf-8") as file:
            episodes = [Episode.from_json(line) for line in file]
        if expected is not None and len(episodes) != expected:
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


def _key(config: RunConfig, adapters: dict[str, Path]) -> str:
    """A digest of all that decides the demonstrations."""
    names = ("seed", "env", "game", "teachers", "policy", "collect", "sampling")
    plain = dataclasses.asdict(config)
    decides: dict[str, Any] = {"demonstrations": {k: plain[k] for k in names}}
    if adapters:
        decides["adapters"] = {k: digest(f / ADAPTER) for k, f in adapters.items()}
    return fingerprint(decides)


def check_mark(out: Path, key: str, sizes: Sequence[int]) -> None:
    """Marks a folder of demonstrations as made by what ``key`` digests, in chunks of so many episodes.

    Raises `ConfigurationError` if it holds those of another config.
    """
    known = _mark(out).get("config")
    if known != key and (known is not None or _file(out, 0).exists()):
        raise ConfigurationError(
            f"{out} holds demonstrations of another config; delete it or choose another folder"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / _MARK, json.dumps({"config": key, "chunks": len(sizes), "episodes": [*sizes]}))


def _check_mark(found: Any) -> None:
    if not isinstance(found["config"], str):
        raise TypeError("config is no text")
    numbers = [found.get("chunks", 0), *found.get("episodes", ())]
    if not all(isinstance(n, int) and n >= 0 for n in numbers):
        raise TypeError("chunks and episodes are no numbers")


def _mark(folder: Path) -> dict[str, Any]:
    path = folder / _MARK
    try:
        found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        if path.is_file():
            _check_mark(found)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error!r}); delete {folder} to start over"
        ) from error
    marked: dict[str, Any] = found
    return marked
