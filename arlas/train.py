"""Adversarial RL of two seats against each other: Algorithm 1 of ARLAS.

::

    for i = 1, 2, …:
        agent's groups:    latest agent    × attackers drawn from the population {0 … i-1}
        attacker's groups: latest attacker × latest agent
        update each seat by GRPO on its own groups
        the new attacker joins the population; everything is written as one bundle
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from arlas.build import check_placement, driver, engine, first_version, model_name, part, tasks_of
from arlas.config import RunConfig
from arlas.learning import parallel
from arlas.learning.learner import Learner
from arlas.learning.shaping import Shaping
from arlas.metrics import check_faults, count, summarize
from arlas.policies.base import Policy
from arlas.population import AdapterCache, Member, Population
from arlas.probe import Probe
from arlas.rollout import Driver, GroupSpec
from arlas.rundir import MetricLog, RunDir, finite
from arlas.seeding import derive
from arlas.types import CheckpointError, ConfigurationError, Episode, Group, PolicyRef, Seat
from envs.base import Worlds

log = logging.getLogger(__name__)


def train(config: RunConfig) -> float:
    """Trains until ``algo.iterations`` bundles exist, continuing what the run folder holds.

    Returns the last value of the metric named by ``objective``. Raises `ConfigurationError` before any
    work if the config, the tasks or the run folder are wrong.
    """
    config.validate()
    env = part(config.env, "env")
    tasks = tasks_of(env)
    if not tasks.train:
        raise ConfigurationError("env: there are no training tasks")
    check_placement(config, env)
    if config.threads:
        import torch

        torch.set_num_threads(config.threads)
    parallel.check_engine(part(config.policy, "policy"))
    if not parallel.is_main():
        parallel.follow(_learner(config))
        return float("nan")
    run = RunDir(config)
    worlds: Worlds | None = None
    policy: Policy | None = None
    try:
        worlds = env.open()
        policy = engine(config)
        learner = _learner(config)
        loop = Loop(config, run, tasks.train, driver(config, policy, worlds), learner)
        result = asyncio.run(_closing(loop.run(), worlds))
        parallel.stop(learner)
        return result
    finally:
        if policy is not None:
            policy.close()
        if worlds is not None:
            asyncio.run(worlds.close())
        run.close()


def _learner(config: RunConfig) -> Learner:
    return Learner(
        model=model_name(config),
        lora=config.lora,
        algo=config.algo,
        init=config.init,
        temperature=config.sampling.temperature,
        seats=tuple(Seat),
        seed=config.seed,
        device=config.algo.device,
        dtype=config.algo.dtype,
        shaping=Shaping.of(config.shaping, config.reward, config.sampling.max_tokens),
    )


async def _closing(work: Any, worlds: Worlds) -> float:
    """Runs the loop and closes the worlds in the event loop that used them, even when interrupted."""
    try:
        result: float = await work
        return result
    finally:
        await worlds.close()


class Loop:
    """The state of a run between two bundles; all of it is in the bundles."""

    def __init__(
        self,
        config: RunConfig,
        run: RunDir,
        tasks: Sequence[str],
        games: Driver,
        learner: Learner,
    ) -> None:
        self.config, self.run_dir, self.tasks = config, run, tuple(tasks)
        self.games, self.learner = games, learner
        self.population = Population(config.population)
        self.adapters = AdapterCache(games.policy, config.population.loaded)
        self.probe = Probe(games, learner, config.algo.engine_tolerance)
        self.done = 0
        self.rows: list[dict[str, Any]] = []
        self.current: dict[Seat, str] = {}
        self.served: dict[str, float] = {}

    async def run(self) -> float:
        """The loop itself."""
        await self._resume()
        metrics = MetricLog(self.run_dir.path, self.config.logger, self.config.name, self.rows)
        try:
            for iteration in range(self.done + 1, self.config.algo.iterations + 1):
                started = time.monotonic()
                groups, refilled = await self._collect(iteration)
                row: dict[str, Any] = {"iteration": iteration, **self.served, **refilled}
                row["time/rollout"] = time.monotonic() - started
                for seat in self.config.algo.seats:
                    own = [g for g in groups if g.learner is seat]
                    row |= summarize(own, seat)
                    updated = parallel.update(
                        self.learner, seat, own, seed=derive(self.config.seed, iteration, seat)
                    )
                    row |= {f"{seat}/{k}": v for k, v in updated.items()}
                if self.config.objective not in row:
                    raise ConfigurationError(
                        f"objective={self.config.objective} is no metric of this run; there are "
                        f"{', '.join(sorted(row))}"
                    )
                self._record(groups)
                row["time/iteration"] = time.monotonic() - started
                self._save(iteration, finite(row), groups)
                metrics.write(row)
                await self._publish(iteration)
                log.info(_line(row))
        finally:
            metrics.close()
        value = self.rows[-1].get(self.config.objective) if self.rows else None
        return float("nan") if value is None else float(value)

    # --- one iteration ------------------------------------------------------------------------------

    def specs(self, iteration: int) -> list[GroupSpec]:
        """The groups of an iteration; they follow from the seed and the population alone."""
        algo, rng = self.config.algo, random.Random(derive(self.config.seed, "groups", iteration))
        found: list[GroupSpec] = []
        for seat in algo.seats:
            tasks = _cycle(self.tasks, rng)
            found += [self._spec(seat, tasks, rng) for _ in range(algo.groups)]
        return found

    def _spec(self, seat: Seat, tasks: Iterator[str], rng: random.Random) -> GroupSpec:
        """One group for a seat to learn from, with its opponents drawn."""
        size = self.config.algo.group_size
        attackers: tuple[PolicyRef, ...] = ()
        if seat is Seat.ATTACKER:
            attackers = (self.population.latest.ref,) * size
        elif self.config.game.attack:
            attackers = self.population.draw(size, rng)
        return GroupSpec(
            task=next(tasks),
            seed=rng.getrandbits(31),
            learner=seat,
            agent=self.agent,
            attackers=attackers,
            size=size,
        )

    @property
    def agent(self) -> PolicyRef:
        """The latest agent."""
        trained = self.done and Seat.AGENT in self.config.algo.seats
        version = f"rl-{self.done}" if trained else first_version(self.config, Seat.AGENT)
        return PolicyRef(Seat.AGENT, version, self.current[Seat.AGENT])

    async def _collect(self, iteration: int) -> tuple[list[Group], dict[str, float]]:
        """Plays an iteration's groups and, up to ``algo.refill``, others in place of those that teach nothing.

        Flat groups stay among the groups: they are counted, reported and saved like all others. Also
        returns how many were drawn anew for each seat. Which ones follows from the seed and what was played.
        """
        algo, specs = self.config.algo, self.specs(iteration)
        seed = derive(self.config.seed, "rollout", iteration)
        draws = {
            seat: random.Random(derive(self.config.seed, "refill", iteration, seat))
            for seat in algo.seats
        }
        tasks = {seat: _cycle(self.tasks, rng) for seat, rng in draws.items()}
        drawn = dict.fromkeys(algo.seats, 0)
        groups: list[Group] = []
        with tqdm(
            total=0,
            desc=f"iteration {iteration}/{algo.iterations}",
            unit="episode",
            disable=not self.config.logger.progress,
        ) as bar:
            while specs:
                bar.total += sum(s.size for s in specs)
                for chunk in chunked(specs, self.config.population.loaded):
                    self.adapters.ensure(self._paths(chunk))
                    groups += await self.games.rollout(chunk, seed, lambda _: bar.update())
                specs = []
                for seat in algo.seats if algo.refill else ():
                    lacking = algo.groups - sum(
                        self.learner.teaches(seat, g) for g in groups if g.learner is seat
                    )
                    more = min(lacking, algo.refill - drawn[seat])
                    drawn[seat] += more
                    specs += [self._spec(seat, tasks[seat], draws[seat]) for _ in range(more)]
        check_faults([e for g in groups for e in g.episodes], algo.max_error_share)
        refilled = {f"{seat}/groups_refilled": float(n) for seat, n in drawn.items()}
        return groups, refilled if algo.refill else {}

    def _paths(self, specs: Sequence[GroupSpec]) -> dict[str, Path]:
        wanted = {a for s in specs for a in s.attackers}
        by_version = {m.version: m for m in self.population.members}
        return {
            str(a.adapter): self.run_dir.path / by_version[a.version].folder
            for a in sorted(wanted, key=lambda a: a.version)
        }

    def _record(self, groups: Sequence[Group]) -> None:
        """Counts for PFSP: what each attacker won against the agent."""
        met: dict[str, list[Episode]] = {}
        for group in groups:
            for episode in group.episodes:
                if episode.attacker is not None:
                    met.setdefault(episode.attacker.version, []).append(episode)
        for version, episodes in met.items():
            counts = count(episodes)
            self.population.record(version, counts.exposed, counts.leaks)

    # --- bundles ------------------------------------------------------------------------------------

    def _save(self, iteration: int, row: dict[str, Any], groups: Sequence[Group]) -> None:
        bundles = self.run_dir.bundles
        version = f"rl-{iteration}" if iteration else first_version(self.config, Seat.ATTACKER)
        if self.config.game.attack:
            folder = bundles.folder(iteration).relative_to(self.run_dir.path) / Seat.ATTACKER
            if iteration == 0 or Seat.ATTACKER in self.config.algo.seats:
                self.population.add(Member(version, iteration, folder.as_posix()))
        state = {"iteration": iteration, "metrics": row, "population": self.population.state()}
        with bundles.write(iteration, state) as aside:
            for seat in Seat:
                self.learner.save_adapter(seat, aside / seat)
            self.learner.save(aside / "learner")
            with (aside / "episodes.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(e.to_json() + "\n" for g in groups for e in g.episodes)
        bundles.forget_learner(before=iteration - 1)
        self.done = iteration
        if iteration:
            self.rows.append(row)

    async def _resume(self) -> None:
        """Takes up the last whole bundle, or writes the one of iteration 0."""
        bundles = self.run_dir.bundles
        found = bundles.iterations()
        if not found:
            self._save(0, {}, [])
        else:
            if found != list(range(found[-1] + 1)):
                raise CheckpointError(
                    f"{bundles.root} lacks bundles between {found[0]} and {found[-1]}: restore them from a "
                    "copy, or start in a new run folder"
                )
            if not (bundles.folder(found[-1]) / "learner").is_dir():
                raise CheckpointError(
                    f"{bundles.folder(found[-1])} keeps adapters but no optimizers any more: start a new run "
                    "from them with init.agent and init.attacker"
                )
            states = [bundles.read(i, newest=i == found[-1]) for i in found]
            parallel.load(self.learner, bundles.folder(found[-1]) / "learner")
            self.population = Population.from_state(
                self.config.population, states[-1]["population"]
            )
            self.rows = [s["metrics"] for s in states if s["iteration"]]
            self.done = found[-1]
            log.info("resuming %s after iteration %d", self.run_dir.path, self.done)
        await self._publish(self.done)

    async def _publish(self, iteration: int) -> None:
        """Serves the new adapters and lets the engine prove it (invariant 7)."""
        for seat in Seat:
            if seat is Seat.ATTACKER and not self.config.game.attack:
                continue
            if iteration and seat not in self.config.algo.seats and seat in self.current:
                continue
            old = self.current.get(seat)
            name = f"{seat}-{iteration:04d}"
            path = self.run_dir.bundles.folder(iteration) / seat
            if seat is Seat.AGENT:
                self.adapters.pin(name, path)
                if old is not None:
                    self.adapters.drop(old)
            else:
                self.adapters.ensure({name: path})
            self.current[seat] = name
            self.served[f"{seat}/engine_gap"] = await self.probe.prove(seat, name)


def chunked(specs: Sequence[GroupSpec], limit: int) -> Iterator[list[GroupSpec]]:
    """The specs in order of their attackers, cut so that no part needs more than ``limit`` adapters."""
    ordered = sorted(specs, key=lambda s: sorted({a.version for a in s.attackers}))
    part_: list[GroupSpec] = []
    names: set[PolicyRef] = set()
    for spec in ordered:
        if part_ and len(names | set(spec.attackers)) > limit:
            yield part_
            part_, names = [], set()
        part_.append(spec)
        names |= set(spec.attackers)
    if part_:
        yield part_


def _cycle(tasks: Sequence[str], rng: random.Random) -> Iterator[str]:
    """All tasks in a fresh random order, again and again."""
    while True:
        yield from rng.sample(tasks, len(tasks))


def _line(row: dict[str, Any]) -> str:
    shown = ("agent/tsr", "agent/asr", "agent/reward_mean", "attacker/asr", "attacker/reward_mean")
    figures = "  ".join(f"{k} {row[k]:.3f}" for k in shown if isinstance(row.get(k), float))
    return f"iteration {row['iteration']}: {figures}"
