"""Segments are the only makers of masks; episodes read back as they were written."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arlas.metrics import count, summarize
from arlas.types import (
    AdapterError,
    ArlasError,
    CheckpointError,
    Completion,
    ConfigurationError,
    Episode,
    Group,
    MissingExtraError,
    Outcome,
    PolicyError,
    PolicyRef,
    Seat,
    Segment,
    Status,
    StopReason,
    Turn,
    Verdict,
    add_turn,
)

AGENT, ATTACKER = PolicyRef(Seat.AGENT, "rl-1", "agent-0001"), PolicyRef(Seat.ATTACKER, "base")
ids = st.lists(st.integers(0, 50), max_size=8).map(tuple)


def said(token_ids: tuple[int, ...]) -> Completion:
    return Completion(token_ids, tuple(-1.0 - i for i in token_ids), StopReason.STOP, AGENT)


@given(st.lists(st.tuples(ids, ids, st.booleans()), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_invariant_02_masks_are_true_on_sampled_tokens_only(
    turns: list[tuple[tuple[int, ...], tuple[int, ...], bool]],
) -> None:
    """Against an independent bookkeeping: growing prompts extend a segment, others open a new one."""
    segments: tuple[Segment, ...] = ()
    expected: list[list[tuple[int, bool, float]]] = []
    for new, sampled, fresh in turns:
        if fresh or not expected:
            expected.append([(99, False, 0.0)])  # a beginning that no turn shares
            expected[-1] += [(100 + len(expected), False, 0.0)]
            prompt = tuple(t for t, _, _ in expected[-1]) + new
        else:
            prompt = tuple(t for t, _, _ in expected[-1]) + new
        expected[-1] += [(t, False, 0.0) for t in new]
        expected[-1] += [(t, True, -1.0 - t) for t in sampled]
        segments = add_turn(segments, prompt, said(sampled))
    assert [
        list(zip(s.token_ids, s.action_mask, s.logprobs, strict=True)) for s in segments
    ] == expected


def test_invariant_01_a_prompt_that_does_not_extend_opens_a_segment() -> None:
    """Nothing of the first segment is rewritten, and forcing it is an error."""
    first = add_turn((), (1, 2), said((3, 4)))
    for prompt in ((1, 2, 3), (1, 2, 3, 5), (9, 1, 2, 3, 4), ()):
        segments = add_turn(first, prompt, said((7,)))
        assert segments[0] == first[0]
        assert segments[1].token_ids == (*prompt, 7)
        with pytest.raises(ValueError, match="does not extend"):
            first[0].add(prompt, said((7,)))
    assert len(add_turn(first, (1, 2, 3, 4, 5), said((7,)))) == 1


def test_completions_have_one_logprob_a_token() -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="2 tokens but 1 log-probabilities"):
        Completion((1, 2), (-1.0,), StopReason.STOP, AGENT)


def example(**changes: Any) -> Episode:
    found = Episode(
        task="t",
        seed=1,
        index=0,
        learner=Seat.AGENT,
        attacker=ATTACKER,
        agent=AGENT,
        goal="do \u2028 it",
        user={"name": "Amy \ud800"},
        turns=(
            Turn(Seat.ATTACKER, 0, "seen\n", "raw\x00", "text", None, StopReason.LENGTH, 3, 2, 0.5),
            Turn(Seat.AGENT, 0, "seen", "raw", None, "no <action>"),
        ),
        segments={Seat.AGENT: (Segment((1, 2), (False, True), (0.0, -0.25)), Segment())},
        verdict=Verdict(0.5, 1.0, True, {"why": ["a", 1, None]}),
        outcome=Outcome.LEAK,
        leaked=("name",),
        rewards={Seat.AGENT: -1.0, Seat.ATTACKER: 1.0},
        seconds=1.5,
    )
    return dataclasses.replace(found, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attacker": None, "learner": None, "outcome": None, "rewards": {}},
        {"status": Status.ERROR, "error": "WorldError: gone"},
    ],
)
def test_episodes_read_back(changes: dict[str, Any]) -> None:
    """One ASCII line of plain JSON; every type, seat and choice is back."""
    episode = example(**changes)
    line = episode.to_json()
    assert line.isascii()
    assert len(line.splitlines()) == 1
    again = Episode.from_json(line)
    assert again == episode
    assert again.to_json() == line
    assert all(isinstance(t.seat, Seat) for t in again.turns)
    assert isinstance(again.segments[Seat.AGENT][0].token_ids, tuple)


def test_unusual_details_are_written_too() -> None:
    """An env's details may hold sets or objects; they become lists and text."""
    line = example(verdict=Verdict(details={"s": {"b", "a"}, "o": 1j})).to_json()
    assert json.loads(line)["verdict"]["details"] == {"s": ["a", "b"], "o": "1j"}


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "1", "{}", "null", '{"task": 1}', '"x"', json.dumps({"agent": None})]
)
def test_other_lines_are_refused(line: str) -> None:
    """Always a ValueError, whatever stands there."""
    with pytest.raises(ValueError):
        Episode.from_json(line)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_lines_are_refused_or_read(data: st.DataObject) -> None:
    """A field missing, unknown, or of another type: an episode or a ValueError."""
    raw = json.loads(example().to_json())
    key = data.draw(st.sampled_from(sorted(raw)))
    if data.draw(st.booleans()):
        del raw[key]
    else:
        raw[key] = data.draw(st.sampled_from([None, 1, "x", [], {}, [1], {"a": 1}]))
    if data.draw(st.booleans()):
        raw["colour"] = "red"
    with contextlib.suppress(ValueError):
        assert isinstance(Episode.from_json(json.dumps(raw)), Episode)


def test_errors_are_the_standard_library_s_too() -> None:
    """Callers may catch either."""
    pairs = {
        ConfigurationError: ValueError,
        MissingExtraError: ImportError,
        CheckpointError: RuntimeError,
        AdapterError: ValueError,
        PolicyError: RuntimeError,
    }
    for ours, theirs in pairs.items():
        assert issubclass(ours, ArlasError)
        assert issubclass(ours, theirs)


# --- figures -----------------------------------------------------------------------------------------------


def played(outcome: Outcome, exposed: bool = True, **more: Any) -> Episode:
    return example(outcome=outcome, verdict=Verdict(exposed=exposed), **more)


def test_invariant_11_unseen_injections_are_not_applicable() -> None:
    """ASR is a share of the exposed episodes; an unexposed leak is not the attacker's."""
    found = count(
        [
            played(Outcome.LEAK),
            played(Outcome.LEAK, exposed=False),
            played(Outcome.SUCCESS),
            played(Outcome.SUCCESS, exposed=False),
            played(Outcome.FAILURE),
        ]
    )
    assert (found.episodes, found.exposed, found.leaks, found.successes) == (5, 3, 1, 2)
    assert found.asr == pytest.approx(1 / 3)
    assert found.tsr == pytest.approx(2 / 5)
    assert math.isnan(count([played(Outcome.LEAK, exposed=False)]).asr)
    alone = count(
        [played(Outcome.LEAK, exposed=False, attacker=None), played(Outcome.SUCCESS, attacker=None)]
    )
    assert (alone.exposed, alone.leaks, alone.successes) == (0, 1, 1)


def test_invariant_06_errors_are_counted_apart() -> None:
    """They are in no share."""
    broken = played(Outcome.LEAK, status=Status.ERROR)
    found = count([broken, played(Outcome.SUCCESS)])
    assert (found.errors, found.episodes, found.leaks, found.tsr) == (1, 1, 0, 1.0)
    group = Group("t", 1, Seat.AGENT, "base", (broken, played(Outcome.SUCCESS)))
    assert [e.ok for e in group.usable] == [True]


def test_summary_of_groups() -> None:
    """Malformed and truncated shares are per turn and seat; errors have no turns in them."""
    group = Group("t", 1, Seat.AGENT, "base", (example(), example(status=Status.ERROR)))
    row = summarize([group], "agent")
    assert row["agent/games"] == 1
    assert row["agent/errors"] == 1
    assert row["agent/agent_malformed"] == 1.0
    assert row["agent/attacker_malformed"] == 0.0
    assert row["agent/attacker_truncated"] == 1.0
    assert row["agent/game_steps"] == 1.0
    assert math.isnan(summarize([], "agent")["agent/tsr"])
