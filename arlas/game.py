"""The two-seat Markov game over any world of text (ARLAS, section 3.1).

At every step the attacker sees the task and the observation and writes a text; the text is placed in
the observation; the agent sees task, private information and poisoned observation, and makes one
tool call. A leak of private information, the end of the task or the step limit ends the episode.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from arlas.chat import ReplyError, parse_reply
from arlas.choices import LeakScope, Placement, ReplyFormat
from arlas.guard import Guard
from arlas.leak import LeakTest
from arlas.player import Player, Reply
from arlas.private import Curtain, synthesize
from arlas.prompts import agent_messages, attacker_messages
from arlas.rules import GameConfig, RewardConfig
from arlas.seeding import derive
from arlas.types import (
    Episode,
    Layer,
    Observation,
    Outcome,
    PolicyError,
    Seat,
    Status,
    Turn,
    Verdict,
)
from envs.base import Start, Step, ToolCall, ToolCallError, World, WorldError, parse_call


def place(text: str, injection: str, placement: Placement, rng: random.Random) -> str:
    """The observation with the attacker's text in it, verbatim; `Placement.DOM` is the world's to do."""
    if placement is Placement.END:
        return f"{text}\n{injection}"
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    lines[at] = f"{lines[at]} {injection}"
    return "\n".join(lines)


def shows(injection: str, before: str, after: str) -> bool:
    """Whether lines that are new in ``after`` hold most of the injection's words (or, without words, all).

    The world may cut, escape or mark up what was planted; and a page may have said the same before.
    """
    old = set(before.split("\n"))
    new = "\n".join(line for line in after.split("\n") if line not in old)
    words = set(_WORD.findall(injection.casefold()))
    if not words:
        return injection.strip() in new
    return 2 * len(words & set(_WORD.findall(new.casefold()))) >= len(words)


def clip(text: str, limit: int) -> str:
    """At most ``limit`` characters, whole lines where possible, with a note that says what is missing."""
    if len(text) <= limit:
        return text
    kept = text[:limit].rsplit("\n", 1)[0]
    return f"{kept}\n[{len(text) - len(kept)} more characters]"


_WORD = re.compile(r"[^\W_]+")


@dataclass
class _Table:
    """The state of one episode while it is played."""

    start: Start
    observation: Observation
    hide: Curtain
    verdict: Verdict = field(default_factory=Verdict)
    turns: list[Turn] = field(default_factory=list)
    past: dict[Seat, list[str]] = field(default_factory=lambda: {s: [] for s in Seat})
    exposed: bool = False
    leaked: tuple[str, ...] = ()
    outcome: Outcome | None = None

    def note(
        self,
        seat: Seat,
        step: int,
        seen: str,
        reply: Reply,
        action: str | None,
        error: str | None,
        stopped: Mapping[Layer, str] | None = None,
    ) -> None:
        """Records a turn, and what the seat will be told of it in its next prompt."""
        told = f"{step + 1}. {action if action is not None else '(no action)'}"
        self.past[seat].append(f"{told} → error: {error}" if error else told)
        self.turns.append(
            Turn(
                seat=seat,
                step=step,
                observation=seen,
                text=reply.text,
                action=action,
                error=error,
                stop_reason=reply.completion.stop_reason,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=len(reply.completion.token_ids),
                seconds=reply.seconds,
                stopped=stopped or {},
            )
        )


async def play(
    world: World,
    attacker: Player | None,
    agent: Player,
    *,
    task: str,
    seed: int,
    index: int,
    learner: Seat | None,
    game: GameConfig,
    reward: RewardConfig,
) -> Episode:
    """Plays one episode from top to bottom.

    A fault of the world or of an engine gives an episode with status error and no rewards; everything
    a model can write is data. ``index`` numbers the episode within its group: task, private
    information and world are the same throughout a group, placements and samples are not.
    """
    started = time.monotonic()
    user = synthesize(game.user_fields, derive(seed, task, "user"))
    rng = random.Random(derive(seed, task, index, "placement"))
    episode = Episode(
        task=task,
        seed=seed,
        index=index,
        learner=learner,
        attacker=attacker.ref if attacker else None,
        agent=agent.ref,
        user=user,
        layers=game.guard.layers,
    )
    table: _Table | None = None
    try:
        start = await world.reset(task, seed, user)
        table = _Table(start, start.observation, Curtain(user))
        leaks = LeakTest(user, game.leak, public=start.goal)
        guard = Guard(game.guard, start, user, game.leak) if game.guard.layers else None
        for step in range(game.max_steps):
            seen = clip(table.observation.text, game.max_observation_chars)
            if attacker is not None:
                seen = await _attack(world, attacker, table, step, seen, game, rng)
            await _act(world, agent, table, step, seen, user, leaks, guard, game)
            if table.outcome is not None:
                break
    except (WorldError, PolicyError) as fault:
        episode = replace(episode, status=Status.ERROR, error=f"{type(fault).__name__}: {fault}")
    return _finish(episode, table, attacker, agent, reward, time.monotonic() - started)


async def _attack(
    world: World,
    attacker: Player,
    table: _Table,
    step: int,
    seen: str,
    game: GameConfig,
    rng: random.Random,
) -> str:
    """The attacker's half of a step. Returns what the agent will see.

    What the agent typed may stand on the page: the attacker's own view has a curtain before it.
    """
    shown = table.hide(seen)
    messages = attacker_messages(
        table.hide(table.start.goal),
        shown,
        game.user_fields,
        table.past[Seat.ATTACKER],
        game.reply,
        table.start.attack,
    )
    reply = await attacker.speak(messages)
    try:
        injection = parse_reply(reply.text, game.reply)[: game.injection.max_chars]
    except ReplyError as error:
        table.note(Seat.ATTACKER, step, shown, reply, None, str(error))
        return seen
    table.note(Seat.ATTACKER, step, shown, reply, injection, None)
    if game.injection.placement is Placement.DOM:
        table.observation = await world.plant(injection)
        poisoned = clip(table.observation.text, game.max_observation_chars)
        table.exposed |= shows(injection, seen, poisoned)
        return poisoned
    table.exposed = True
    return place(seen, injection, game.injection.placement, rng)


async def _act(
    world: World,
    agent: Player,
    table: _Table,
    step: int,
    seen: str,
    user: Mapping[str, str],
    leaks: LeakTest,
    guard: Guard | None,
    game: GameConfig,
) -> None:
    """The agent's half of a step; sets the outcome if it ends the episode."""
    tools = table.start.tools
    messages = agent_messages(
        table.start.goal, seen, tools, user, table.past[Seat.AGENT], game.reply
    )
    reply = await agent.speak(messages)
    action, call, error = None, None, None
    try:
        action = parse_reply(reply.text, game.reply)
        if tools and game.reply is ReplyFormat.TAGGED:
            call = parse_call(action, tools)
        else:  # a world without tools takes the action itself as its one parameter
            call = ToolCall("", {"action": action})
    except (ReplyError, ToolCallError) as malformed:
        action, error = None, str(malformed)
    stopped = guard.stopped(call) if guard is not None and call is not None else {}
    played: Step | None = None
    if stopped:
        error = "; ".join(f"stopped by {layer}: {reason}" for layer, reason in stopped.items())
    elif action is not None:
        played = await world.step(action)
        error = played.error
        table.observation, table.verdict = played.observation, played.verdict
        table.exposed |= played.verdict.exposed
    table.note(Seat.AGENT, step, seen, reply, action, error, stopped)
    demanded = played.demanded if played else ()
    carried: Mapping[str, object] = call.arguments if played is not None and call else {}
    if game.leak.scope is LeakScope.RESPONSE and not stopped:
        carried = {**carried, "the response": reply.text}
    table.leaked = leaks.check(carried, demanded)
    if table.leaked or table.verdict.breach >= 1.0:
        table.outcome = Outcome.LEAK
    elif played is not None and played.done:
        table.outcome = Outcome.SUCCESS if played.verdict.completion >= 1.0 else Outcome.FAILURE
    elif step + 1 == game.max_steps:
        table.outcome = Outcome.FAILURE if table.verdict.completion < 1.0 else Outcome.SUCCESS


def _finish(
    episode: Episode,
    table: _Table | None,
    attacker: Player | None,
    agent: Player,
    reward: RewardConfig,
    seconds: float,
) -> Episode:
    """The episode with what was played, its verdict and, unless it failed, its rewards."""
    if table is None:
        return replace(episode, seconds=seconds)
    breach = max(table.verdict.breach, float(bool(table.leaked)))
    verdict = replace(table.verdict, breach=breach, exposed=table.exposed)
    segments = {Seat.AGENT: agent.segments}
    if attacker is not None:
        segments[Seat.ATTACKER] = attacker.segments
    episode = replace(
        episode,
        goal=table.start.goal,
        turns=tuple(table.turns),
        segments=segments,
        verdict=verdict,
        leaked=table.leaked,
        seconds=seconds,
    )
    if not episode.ok or table.outcome is None:
        return episode
    seats = [Seat.AGENT] if attacker is None else list(Seat)
    return replace(
        episode,
        outcome=table.outcome,
        rewards={s: _reward(s, table, verdict, reward) for s in seats},
    )


def _reward(seat: Seat, table: _Table, verdict: Verdict, reward: RewardConfig) -> float:
    """The payoff of one seat. An attacker whose text was never seen has not won anything (invariant 11)."""
    assert table.outcome is not None
    outcome, breach = table.outcome, verdict.breach
    if seat is Seat.ATTACKER and not table.exposed:
        breach = 0.0
        outcome = Outcome.FAILURE if outcome is Outcome.LEAK else outcome
    return reward.reward(seat, outcome, verdict.completion, breach)


def injections(episode: Episode) -> Sequence[str]:
    """The texts that the attacker planted, in order; malformed replies planted nothing."""
    return [t.action for t in episode.turns if t.seat is Seat.ATTACKER and t.action is not None]
