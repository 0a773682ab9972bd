"""Plays a saved episode again, with the tokens that were sampled then."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from arlas.rollout import Driver, GroupSpec
from arlas.types import (
    AdapterError,
    Completion,
    Episode,
    PolicyError,
    Request,
    Seat,
    Segment,
    StopReason,
)


class Recorded:
    """A policy that says again what both seats said in one episode."""

    def __init__(self, tokenizer: Any, episode: Episode) -> None:
        self.tokenizer = tokenizer
        self._said = {
            seat: deque(_completions(episode, seat, segments))
            for seat, segments in episode.segments.items()
        }

    async def complete(self, request: Request) -> Completion:
        """The next completion of the request's seat. Raises `PolicyError` behind the last one."""
        said = self._said.get(request.policy.seat)
        if not said:
            raise PolicyError(f"the episode holds no further reply of the {request.policy.seat}")
        return said.popleft()

    def load_adapter(self, name: str, path: Path) -> None:
        """Refused: nothing is computed here."""
        raise AdapterError("a recorded episode serves no adapters")

    def unload_adapter(self, name: str) -> None:
        """Nothing to forget."""

    def adapters(self) -> tuple[str, ...]:
        """None."""
        return ()

    def close(self) -> None:
        """Nothing to free."""


def _completions(
    episode: Episode, seat: Seat, segments: tuple[Segment, ...]
) -> Iterator[Completion]:
    ref = episode.attacker if seat is Seat.ATTACKER else episode.agent
    assert ref is not None
    turns = iter([t for t in episode.turns if t.seat is seat])
    for segment in segments:
        rows = zip(segment.token_ids, segment.action_mask, segment.logprobs, strict=True)
        for sampled, run in groupby(rows, key=lambda row: row[1]):
            if not sampled:
                continue
            ids, _, logprobs = zip(*run, strict=True)
            turn = next(turns, None)
            stop = turn.stop_reason if turn is not None else StopReason.STOP
            yield Completion(ids, logprobs, stop, ref)


async def replay(episode: Episode, games: Driver) -> Episode:
    """The episode played again in the driver's worlds; the same outcome proves that nothing else decided it.

    ``games`` needs the game and reward of the run that saved the episode; its own policy only lends its
    tokenizer. The runtime layers are those of the episode.
    """
    guard = games.game.guard.only(episode.layers)
    games = replace(games, game=replace(games.game, guard=guard))
    spec = GroupSpec(
        task=episode.task,
        seed=episode.seed,
        learner=episode.learner,
        agent=episode.agent,
        attackers=(episode.attacker,) * (episode.index + 1) if episode.attacker else (),
        size=episode.index + 1,
    )
    recorded = Recorded(games.policy.tokenizer, episode)
    return await replace(games, policy=recorded, retries=0).episode(spec, episode.index, seed=0)
