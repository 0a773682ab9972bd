"""Game steps per second and core: our worker pool, a bare Playwright script, and BrowserGym's own loop.

All three play the same episodes (task, seed) with the same clicks, in turns, each with one page. Seconds of a core
are those of a contender's whole process family, Chromium included, so that a busy machine does not decide.

    python scripts/bench/web.py [--rounds 5] [--seeds 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from envs.processes import family
from envs.web import WebConfig
from envs.web.browser import FLAGS, VIEWPORT, find_chromium, find_pages
from envs.web.tasks import miniwob_tasks
from envs.workers import ProcessWorlds

TASKS = ("click-button", "enter-text", "login-user", "choose-list")
NO_TIMER = 2_147_483_647


@dataclass(frozen=True)
class Act:
    """One action: by selector for the bare script, by role, name and place for the others."""

    tool: str
    css: str
    role: str
    name: str = ""
    nth: int = 0
    value: str = ""


def solution(task: str, goal: str) -> list[Act]:
    """What solves an episode of ``task`` with this goal."""
    words = re.findall(r'"([^"]*)"', goal)
    if task == "click-button":
        return [Act("click", f'#area button:text-is("{words[0]}") >> nth=0', "button", words[0])]
    if task == "enter-text":
        return [
            Act("fill", "#tt", "textbox", value=words[0]),
            Act("click", "#subbtn", "button", "Submit"),
        ]
    if task == "login-user":
        return [
            Act("fill", "#username", "textbox", value=words[0]),
            Act("fill", "#password", "textbox", nth=1, value=words[1]),
            Act("click", "#subbtn", "button", "Login"),
        ]
    wanted = goal.removeprefix("Select ").split(" from the list")[0]
    return [
        Act("select_option", "#area select", "combobox", value=wanted),
        Act("click", "#area button", "button", "Submit"),
    ]


# --- the contenders: each plays `seeds` episodes of each task and returns its number of steps -------------


async def pool_plays(worlds: ProcessWorlds, seeds: range) -> int:
    steps = 0
    for task in TASKS:
        for seed in seeds:
            world = await worlds.acquire()
            start = await world.reset(f"miniwob.{task}", seed, {})
            text = start.observation.text
            for act in solution(task, start.goal):
                lines = [r for r in text.splitlines() if r.startswith(act.role)]
                line = [r for r in lines if act.name in r][act.nth]
                bid = re.findall(r"\[(\d+)\]$", line)[0]
                value = f", {act.value!r}" if act.value else ""
                step = await world.step(f"{act.tool}({bid!r}{value})")
                text = step.observation.text
                steps += 1
            assert (step.done, step.verdict.completion) == (True, 1.0), (task, seed, step)
            await world.close()
    return steps


def bare(conn: Connection) -> None:
    """Nothing but Playwright: the page is kept between episodes of a task, the reward read each step."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        page = browser.new_context(viewport=VIEWPORT).new_page()
        conn.send("ready")
        while (seeds := conn.recv()) is not None:
            steps = 0
            for task in TASKS:
                page.goto(f"file://{find_pages()}/miniwob/{task}.html")
                for seed in seeds:
                    goal = page.evaluate(
                        "([seed, limit]) => { Math.seedrandom(seed); core.EPISODE_MAX_TIME = limit;"
                        " core.startEpisodeReal(); return core.getUtterance(); }",
                        [seed, NO_TIMER],
                    )
                    for act in solution(task, goal):
                        arguments = [act.value] if act.value else []
                        getattr(page, act.tool)(act.css, *arguments)
                        done, reward = page.evaluate("[WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]")
                        steps += 1
                    assert (done, reward > 0) == (True, True), (task, seed)
            conn.send(steps)
        browser.close()


def browsergym(conn: Connection) -> None:
    """BrowserGym's environment as it comes, without its chat window, which needs a second browser."""
    os.environ["MINIWOB_URL"] = f"file://{find_pages()}/miniwob/"
    import browsergym.core.env as core

    class NoChat:
        def __init__(self, **_: Any) -> None:
            self.messages: list[Any] = []

        def add_message(self, **message: Any) -> None:
            self.messages.append(message)

        def close(self) -> None: ...

    core.Chat = NoChat
    kwargs = {"executable_path": find_chromium(), "chromium_sandbox": False}
    conn.send("ready")
    while (seeds := conn.recv()) is not None:
        steps = 0
        for task in TASKS:
            env = core.BrowserEnv(
                miniwob_tasks()[f"miniwob.{task}"],
                task_kwargs={"episode_max_time": NO_TIMER},
                pw_chromium_kwargs=kwargs,
            )
            for seed in seeds:
                seen, _ = env.reset(seed=seed)
                for act in solution(task, seen["goal"]):
                    nodes = [
                        n["browsergym_id"]
                        for n in seen["axtree_object"]["nodes"]
                        if n["role"]["value"] == act.role and act.name in n["name"]["value"]
                    ]
                    value = f", {act.value!r}" if act.value else ""
                    seen, reward, done, *_ = env.step(f"{act.tool}({nodes[act.nth]!r}{value})")
                    steps += 1
                assert (done, reward) == (True, 1.0), (task, seed)
            env.close()
        conn.send(steps)


# --- measuring ------------------------------------------------------------------------------------------------


def core_seconds(root: int) -> float:
    """Processor time of a process and all its living and reaped descendants, in seconds."""
    ticks = 0
    for pid in family(root, "-"):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass
class Tally:
    steps: int = 0
    wall: float = 0.0
    core: float = 0.0

    def add(self, root: int, play: Callable[[], int], own: bool = False) -> None:
        """Plays once and adds what it cost; with ``own``, this process's time as well."""
        core, wall, mine = core_seconds(root), time.perf_counter(), time.process_time()
        self.steps += play()
        self.wall += time.perf_counter() - wall
        self.core += core_seconds(root) - core + (time.process_time() - mine) * own


class Child:
    """A contender in a process of its own."""

    def __init__(self, target: Callable[[Connection], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self.conn, theirs = context.Pipe()
        self.process = context.Process(target=target, args=(theirs,))
        self.process.start()
        assert self.conn.recv() == "ready"
        self.pid = self.process.pid or 0

    def play(self, seeds: range) -> int:
        self.conn.send(seeds)
        return int(self.conn.recv())

    def close(self) -> None:
        self.conn.send(None)
        self.process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=4, help="episodes a task and round")
    options = parser.parse_args()
    loop = asyncio.new_event_loop()
    worlds = WebConfig(workers=1, slots=1).open()
    plain, stock = Child(bare), Child(browsergym)
    try:
        loop.run_until_complete(
            pool_plays(worlds, range(1))
        )  # warm up: browsers start, files are read
        plain.play(range(1))
        stock.play(range(1))
        process = worlds._workers[0]._process
        assert process is not None
        root = process.pid or 0
        ours, theirs, gym = Tally(), Tally(), Tally()
        for number in range(options.rounds):
            seeds = range(1 + number * options.seeds, 1 + (number + 1) * options.seeds)
            ours.add(root, lambda s=seeds: loop.run_until_complete(pool_plays(worlds, s)), own=True)
            theirs.add(plain.pid, lambda s=seeds: plain.play(s))
            gym.add(stock.pid, lambda s=seeds[:1]: stock.play(s))
            for name, t in (("pool", ours), ("playwright", theirs), ("browsergym", gym)):
                rate = f"{t.steps / t.core:7.2f} steps per core-second, {t.steps / t.wall:7.2f} a second"
                print(f"round {number + 1} {name:11} {t.steps:4} steps {rate}", flush=True)
    finally:
        loop.run_until_complete(worlds.close())
        plain.close()
        stock.close()
    per_core = {n: t.steps / t.core for n, t in (("pool", ours), ("bare", theirs), ("gym", gym))}
    per_second = {n: t.steps / t.wall for n, t in (("pool", ours), ("bare", theirs), ("gym", gym))}
    result = {
        "bench": "web",
        "ratio": round(per_core["pool"] / per_core["bare"], 3),
        "divided": "game steps per core-second through the pool ÷ bare Playwright, same clicks and pages",
        "ratio_wall": round(per_second["pool"] / per_second["bare"], 3),
        "pool_over_browsergym": round(per_core["pool"] / per_core["gym"], 3),
        "pool_over_browsergym_wall": round(per_second["pool"] / per_second["gym"], 3),
        "steps_per_core_second": {n: round(v, 2) for n, v in per_core.items()},
        "steps_per_second": {n: round(v, 2) for n, v in per_second.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
