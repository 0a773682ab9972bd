"""Saved episodes played again: the sampled tokens and the world decide everything."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import Fake, Page, act, chat_of, driver, episode, turns, with_game
from support import matrix_run

from arlas.build import driver as driver_of
from arlas.build import model_name, part
from arlas.checkpoint import Bundles
from arlas.choices import History
from arlas.policies.models import load_tokenizer
from arlas.replay import Recorded, replay
from arlas.train import train
from arlas.types import AdapterError, Episode, Outcome, Seat, Status


def timeless(played: Episode) -> Episode:
    """The episode without its times, the one thing that may differ."""
    turns = tuple(replace(turn, seconds=0.0) for turn in played.turns)
    return replace(played, turns=turns, seconds=0.0)


def test_a_trained_runs_episodes_come_out_as_saved(tmp_path: Path) -> None:
    """Both seats' groups of a training run on the matrix world: same words, outcome and rewards."""
    run_dir = tmp_path / "run"
    config = matrix_run(run_dir)
    train(config)
    lines = (Bundles(run_dir).folder(1) / "episodes.jsonl").read_text("utf-8").splitlines()
    saved = [Episode.from_json(line) for line in lines]
    assert {e.learner for e in saved} == set(Seat)
    tokenizer = load_tokenizer(model_name(config))

    async def again() -> list[Episode]:
        worlds = part(config.env, "env").open()
        try:
            games = driver_of(config, Recorded(tokenizer, saved[0]), worlds)
            return [await replay(e, games) for e in saved]
        finally:
            await worlds.close()

    for old, new in zip(saved, asyncio.run(again()), strict=True):
        assert timeless(new) == timeless(old)


@pytest.mark.parametrize("history", list(History))
@pytest.mark.parametrize("attacked", [True, False])
def test_tagged_episodes_of_several_turns_come_out_as_saved(
    history: History, attacked: bool
) -> None:
    """With a segment for every turn and with one for the whole game, malformed replies included."""
    said = (act("fill('1', 'a')"), "no action at all", act("click('done')"))
    policy = Fake(chat_of(), turns(said, ["an attack", act("Click [7].")]))
    game = with_game(history=history)
    saved = Episode.from_json(
        asyncio.run(episode(driver(policy, Page, game=game), attacked)).to_json()
    )
    assert saved.outcome is Outcome.SUCCESS
    assert len([t for t in saved.turns if t.seat is Seat.AGENT]) == 3
    assert len(saved.segments[Seat.AGENT]) == (1 if history is History.FULL else 3)
    idle = Fake(chat_of(), turns(["never asked"]))
    new = asyncio.run(replay(saved, driver(idle, Page, game=game)))
    assert timeless(new) == timeless(saved)
    assert not idle.requests


def test_another_world_is_noticed() -> None:
    """If the world went on after the recorded end, the replay is a fault, never another result."""
    policy = Fake(chat_of(), turns([act("click('done')")]))
    saved = asyncio.run(episode(driver(policy), attacked=False))

    class Longer(Page):
        def step(self, action: str):  # type: ignore[no-untyped-def]
            return super().step(action.replace("done", "1"))

    new = asyncio.run(replay(saved, driver(policy, Longer)))
    assert new.status is Status.ERROR
    assert "no further reply of the agent" in (new.error or "")


def test_a_recorded_episode_serves_no_adapters(tmp_path: Path) -> None:
    """There are no weights behind it."""
    policy = Fake(chat_of(), turns([act("click('done')")]))
    recorded = Recorded(policy.tokenizer, asyncio.run(episode(driver(policy), attacked=False)))
    with pytest.raises(AdapterError, match="serves no adapters"):
        recorded.load_adapter("a", tmp_path)
    assert recorded.adapters() == ()
