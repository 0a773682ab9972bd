"""Cross-play: any agents against any attackers, cell by cell, continued where it was stopped."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import hashlib
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from arlas.build import check_placement, driver, engine, load_run, part, tasks_of
from arlas.checkpoint import ADAPTER, Bundles, digest, locked, write_file, written_aside
from arlas.config import RunConfig
from arlas.fingerprint import fingerprint
from arlas.metrics import check_faults, count
from arlas.policies.base import Policy
from arlas.population import AdapterCache
from arlas.rollout import Driver, GroupSpec
from arlas.seeding import derive
from arlas.statistics import CROSSPLAY_HEADER, NO_ATTACK, CrossplayRow, cell_row
from arlas.types import (
    CheckpointError,
    ConfigurationError,
    Episode,
    PolicyRef,
    Seat,
    guard_layers,
    guard_name,
)
from envs.base import Worlds


@dataclass(frozen=True)
class Entrant:
    """A policy of a cross-play: what it is called, and the folder of its adapter if it has one."""

    ref: PolicyRef
    folder: Path | None = None


def entrant(seat: Seat, name: str, run_dir: Path, teachers: Sequence[str]) -> Entrant:
    """Finds a policy by name: base, sft, rl-N, a teacher, an adapter's folder or the one
    that holds both seats', or RUN_DIR:rl-N.

    Raises `ConfigurationError` listing what the run folder offers.
    """
    if name == "base" or name in teachers:
        return Entrant(PolicyRef(seat, name))
    if ":" in name:
        other, _, stage = name.rpartition(":")
        found = entrant(seat, stage, Path(other), ())
        adapter = _slug(name, seat) if found.folder else None
        return Entrant(dataclasses.replace(found.ref, version=name, adapter=adapter), found.folder)
    for folder in (Path(name), Path(name) / seat):
        if (folder / "adapter_config.json").is_file():
            return Entrant(PolicyRef(seat, name, _slug(name, seat)), folder)
    bundles = Bundles(run_dir)
    stages = {(_start(run_dir, seat) if i == 0 else f"rl-{i}"): i for i in bundles.iterations()}
    if name not in stages:
        offered = ", ".join(dict.fromkeys(["base", *stages, *teachers]))
        raise ConfigurationError(f"no policy {name} in {run_dir}; it offers {offered}")
    return Entrant(PolicyRef(seat, name, f"{seat}-{name}"), bundles.adapter(stages[name], seat))


def _start(run_dir: Path, seat: Seat) -> str:
    """What the run calls its policy of iteration 0: with a fresh adapter it is the base model."""
    init = load_run(run_dir).get("init") or {}
    return "sft" if init.get(seat.value) else "base"


def _slug(name: str, seat: Seat) -> str:
    return f"{seat}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def cells_of(config: RunConfig, out: Path) -> list[Cell]:
    """Every cell of a cross-play. Raises `ConfigurationError` for unknown policies or tasks."""
    run_dir, teachers = Path(config.run_dir), tuple(config.teachers)
    agents = [entrant(Seat.AGENT, n, run_dir, teachers) for n in config.eval.agents]
    attackers = [
        None if n == NO_ATTACK else entrant(Seat.ATTACKER, n, run_dir, teachers)
        for n in config.eval.attackers
    ]
    env = part(config.env, "env")
    check_placement(config, env)
    split = tasks_of(env)
    tasks = split.eval if config.eval.split == "eval" else split.train
    if not tasks:
        raise ConfigurationError(f"env: the {config.eval.split} split has no tasks")
    return [
        Cell(guarded, tasks, out / "cells", agent, attacker, seed)
        for guarded in (_guarded(config, name) for name in config.eval.guards)
        for seed in config.eval.seeds
        for attacker in attackers
        for agent in agents
    ]


def _guarded(config: RunConfig, guard: str) -> RunConfig:
    """The config with these runtime layers and no others. Raises `ConfigurationError`."""
    layers = config.game.guard.only(guard_layers(guard))
    game = dataclasses.replace(config.game, guard=layers)
    game.validate()
    return dataclasses.replace(config, game=game)


def crossplay(config: RunConfig, out: Path | None = None) -> Path:
    """Plays every cell that is not there yet and writes ``crossplay.csv``. Returns its path.

    Cells lie in ``out/cells/``, each whole or absent; a cell is another one if an adapter or anything
    else that decides its result has changed. Raises `ConfigurationError` before anything is played.
    """
    out = out or Path(config.run_dir) / "crossplay"
    cells = cells_of(config, out)
    with locked(out):
        _fill(config, [c for c in cells if not c.done()])
        return _write_csv(out, cells)


def _fill(config: RunConfig, missing: Sequence[Cell]) -> None:
    if missing:
        worlds = part(config.env, "env").open()
        policy: Policy | None = None
        try:
            policy = engine(config)
            asyncio.run(_play(config, missing, policy, worlds))
        finally:
            if policy is not None:
                policy.close()
            asyncio.run(worlds.close())


async def _play(config: RunConfig, cells: Sequence[Cell], policy: Policy, worlds: Worlds) -> None:
    games = driver(config, policy, worlds, config.eval.temperature)
    adapters = AdapterCache(policy, max(2, config.population.loaded))
    total = config.eval.episodes * len(cells)
    try:
        with tqdm(total=total, unit="episode", disable=not config.logger.progress) as bar:
            for cell in cells:
                bar.set_description(f"{cell.attacker_name} × {cell.agent.ref.version}")
                adapters.ensure(cell.adapters())
                await cell.play(dataclasses.replace(games, game=cell.config.game), bar)
    finally:
        await worlds.close()


@dataclass(frozen=True)
class Cell:
    """One agent against one attacker (None: no attack) with one seed, behind the runtime layers of ``config``."""

    config: RunConfig
    tasks: tuple[str, ...]
    root: Path
    agent: Entrant
    attacker: Entrant | None
    seed: int

    @property
    def attacker_name(self) -> str:
        """What the attacker is called in the table."""
        return self.attacker.ref.version if self.attacker else NO_ATTACK

    @property
    def folder(self) -> Path:
        """Where the cell lies once it is whole; the name changes with what decides its result."""
        decides = [
            self.agent.ref.version,
            self.attacker_name,
            self.seed,
            self.tasks,
            self.config.eval.episodes,
            self.config.eval.temperature,
            fingerprint(dataclasses.asdict(self.config)),
            [digest(f / ADAPTER) for f in self.adapters().values()],
        ]
        key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]
        return self.root / key

    def done(self) -> bool:
        """Whether the cell was played before."""
        return (self.folder / "cell.json").is_file()

    def adapters(self) -> dict[str, Path]:
        """The adapters it needs, by the engine's names."""
        both = [self.agent, *([self.attacker] if self.attacker else [])]
        return {e.ref.adapter: e.folder for e in both if e.ref.adapter and e.folder}

    def specs(self) -> list[GroupSpec]:
        """The episodes: all cells of one seed play the same tasks and seeds."""
        rng = random.Random(derive("crossplay", self.seed))
        order = rng.sample(self.tasks, len(self.tasks))
        return [
            GroupSpec(
                task=order[i % len(order)],
                seed=rng.getrandbits(31),
                learner=None,
                agent=self.agent.ref,
                attackers=(self.attacker.ref,) if self.attacker else (),
                size=1,
            )
            for i in range(self.config.eval.episodes)
        ]

    async def play(self, games: Driver, bar: tqdm[None]) -> None:
        """Plays the cell and writes it whole."""
        groups = await games.rollout(self.specs(), derive(self.seed), lambda _: bar.update())
        episodes: list[Episode] = [e for g in groups for e in g.episodes]
        check_faults(episodes, self.config.algo.max_error_share)
        counts = count(episodes)
        with written_aside(self.folder, replace=True) as aside:
            with (aside / "episodes.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(e.to_json() + "\n" for e in episodes)
            record = {
                "attacker": self.attacker_name,
                "agent": self.agent.ref.version,
                "seed": self.seed,
                "guard": guard_name(self.config.game.guard.layers),
                **dataclasses.asdict(counts),
            }
            (aside / "cell.json").write_text(json.dumps(record), "utf-8")

    def row(self) -> CrossplayRow:
        """The cell as a row of the table."""
        path = self.folder / "cell.json"
        try:
            record = json.loads(path.read_text("utf-8"))
            record.pop("errors")
            return cell_row(**record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{path} is damaged ({error!r}); delete {self.folder} to play this cell again"
            ) from error


def _write_csv(out: Path, cells: Sequence[Cell]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, CROSSPLAY_HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(c.row().record() for c in cells)
    path = out / "crossplay.csv"
    write_file(path, text.getvalue())
    return path
