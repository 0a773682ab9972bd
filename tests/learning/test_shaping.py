"""Penalties on length and repetition against plain computations, and what of them reaches the learner."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning_cases import episode, group, segment, tokens

from arlas.choices import Baseline, LengthPenalty, RepetitionPenalty
from arlas.config import AlgoConfig
from arlas.learning.advantage import MovingBaseline
from arlas.learning.batch import build_samples, micro_batches, teaches
from arlas.learning.shaping import (
    PLAIN,
    Shaping,
    group_length,
    overlong,
    phase,
    repeated,
    repeated_share,
    replies,
    shape,
    token_penalties,
)
from arlas.rules import Payoff, RewardConfig
from arlas.shaping import GoodAbove, ShapingConfig, good_above
from arlas.types import Group, Seat, Status

ZERO_SUM = RewardConfig(failure=Payoff(0.0, 0.0))
NOTHING = Payoff(0.0, 0.0)
DENSE = RewardConfig(NOTHING, NOTHING, NOTHING, Payoff(-1.0, 1.0), Payoff(1.0, -1.0))


def shaping(
    reward: RewardConfig | None = None, max_tokens: int = 50, **switches: object
) -> Shaping:
    return Shaping.of(ShapingConfig(**switches), reward or RewardConfig(), max_tokens)  # type: ignore[arg-type]


def saying(*lengths: list[int], rewards: list[float]) -> Group:
    """A group whose episodes have replies of these lengths, each reply in a segment of its own."""
    rng = random.Random(0)
    made = [
        episode(
            i,
            [segment([(tokens(rng, 5), False), (tokens(rng, n), True)]) for n in said],
            reward,
        )
        for i, (said, reward) in enumerate(zip(lengths, rewards, strict=True))
    ]
    return group(made)


# --- length ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 500), st.booleans()), min_size=1, max_size=12))
def test_group_length_by_the_formula(pairs: list[tuple[int, bool]]) -> None:
    """λ = 0.5 − (len − min)/(max − min), λ for the good, min(0, λ) for the others, 0 if max = min."""
    lengths, good = [n for n, _ in pairs], [g for _, g in pairs]
    low, high = min(lengths), max(lengths)
    expected = []
    for n, is_good in pairs:
        score = 0.0 if high == low else 0.5 - (n - low) / (high - low)
        expected.append(score if is_good or score < 0 else 0.0)
    assert group_length(lengths, good) == pytest.approx(expected, abs=1e-12)


def test_group_length_by_hand() -> None:
    """The shortest good one gets +0.5, the shortest bad one 0, the longest −0.5 whatever it is."""
    found = group_length([10, 10, 20, 30, 30], [True, False, True, True, False])
    assert found == [0.5, 0.0, 0.0, -0.5, -0.5]
    assert group_length([7, 7, 7], [True, False, True]) == [0.0] * 3
    assert group_length([], []) == []


def test_length_counts_all_action_tokens_of_the_usable_episodes() -> None:
    """Replies of one episode add up; prompts and failed episodes do not count."""
    made = saying([3, 4], [1], [10, 10, 10], rewards=[1.0, 1.0, -1.0])
    failed = episode(9, [segment([([1], False), ([2] * 99, True)])], 0.0, status=Status.ERROR)
    made = dataclasses.replace(made, episodes=(*made.episodes, failed))
    found = shape(made, Seat.AGENT, shaping(length=LengthPenalty.GROUP), 1)
    assert [s.tokens for s in found] == [7, 1, 30]
    assert [s.replies for s in found] == [2, 1, 3]
    expected = [0.5 - 6 / 29, 0.5, -0.5]
    assert [s.length for s in found] == pytest.approx(expected)
    assert [s.reward for s in found] == pytest.approx([1 + expected[0], 1.5, -1.5])
    assert [s.raw for s in found] == [1.0, 1.0, -1.0]


@pytest.mark.parametrize(
    ("table", "seat", "middle"),
    [
        (RewardConfig(), Seat.AGENT, 0.0),
        (RewardConfig(), Seat.ATTACKER, 0.0),
        (ZERO_SUM, Seat.ATTACKER, 0.0),
        (DENSE, Seat.AGENT, 0.0),
        (RewardConfig(completion_weight=Payoff(0.0, 1.0)), Seat.AGENT, 0.5),
    ],
)
def test_good_is_above_the_middle_of_the_payoffs(
    table: RewardConfig, seat: Seat, middle: float
) -> None:
    """Halfway between the worst and the best that the table holds for the seat; a given threshold comes first."""
    assert good_above(ShapingConfig(), table, seat) == middle
    given = ShapingConfig(good_above=GoodAbove(agent=0.7, attacker=0.1))
    assert good_above(given, table, seat) == (0.7 if seat is Seat.AGENT else 0.1)


def test_the_gate_works_for_graded_rewards() -> None:
    """Dense table: doing nothing (0) earns nothing for being short; half a task without a leak does."""
    made = saying([5], [5], [9], [9], rewards=[0.0, 0.5, 0.5, -0.5])
    found = shape(made, Seat.AGENT, shaping(DENSE, length=LengthPenalty.GROUP), 1)
    assert [s.length for s in found] == [0.0, 0.5, -0.5, -0.5]
    strict = shaping(DENSE, length=LengthPenalty.GROUP, good_above=GoodAbove(agent=0.9))
    assert [s.length for s in shape(made, Seat.AGENT, strict, 1)] == [0.0, 0.0, -0.5, -0.5]


def test_overlong_by_hand() -> None:
    """L_max 100, L_cache 20: nothing up to 80, half at 90, all from 100 on."""
    found = [overlong(n, 100, 20) for n in (0, 80, 81, 90, 99, 100, 200)]
    assert found == pytest.approx([0.0, 0.0, -0.05, -0.5, -0.95, -1.0, -1.0])


def test_overlong_is_the_mean_over_an_episode_s_replies() -> None:
    """By default L_max is the sampling limit and the cache a fifth of it; the weight multiplies."""
    made = saying([50, 45, 10], [], rewards=[1.0, 0.0])
    switched = shaping(length=LengthPenalty.OVERLONG, length_weight=2.0, max_tokens=50)
    assert (switched.longest, switched.cache) == (50, 10)
    found = shape(made, Seat.AGENT, switched, 1)
    assert [s.length for s in found] == pytest.approx([2.0 * -(1.0 + 0.5 + 0.0) / 3, 0.0])
    own = shaping(length=LengthPenalty.OVERLONG, overlong_max=20, overlong_cache=20)
    assert shape(made, Seat.AGENT, own, 1)[0].length == pytest.approx(-(1 + 1 + 0.5) / 3)


def test_phase_in() -> None:
    """Nothing in the warm-up, then a line up to 1; without a ramp a step."""
    assert [phase(i, 2, 4) for i in range(1, 9)] == [0, 0, 0.25, 0.5, 0.75, 1, 1, 1]
    assert [phase(i, 2, 0) for i in range(1, 5)] == [0, 0, 1, 1]
    assert phase(1, 0, 0) == 1.0
    made = saying([1], [3], rewards=[1.0, 1.0])
    switched = shaping(length=LengthPenalty.GROUP, warmup=2, ramp=4)
    found = [[s.length for s in shape(made, Seat.AGENT, switched, i)] for i in (2, 3, 6)]
    assert found == [[0.0, 0.0], [0.125, -0.125], [0.5, -0.5]]


# --- repetition -----------------------------------------------------------------------------------------------

TEXTS = st.lists(st.integers(0, 2), max_size=25)


@given(TEXTS, st.integers(1, 7))
def test_repeated_tokens_by_brute_force(text: list[int], n: int) -> None:
    """A token is marked if some n-gram around it equals an n-gram that begins earlier; all pairs compared."""
    expected = [False] * len(text)
    for i in range(len(text) - n + 1):
        if any(text[i : i + n] == text[j : j + n] for j in range(i)):
            expected[i : i + n] = [True] * n
    assert repeated(text, n) == expected


@given(st.lists(TEXTS, max_size=4), st.integers(1, 7))
def test_repeated_share_by_brute_force(said: list[list[int]], n: int) -> None:
    """1 − different/all over the replies, each with a memory of its own; 0 without any n-gram."""
    total, different = 0, 0
    for text in said:
        grams = [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]
        total += len(grams)
        different += sum(grams[i] not in grams[:i] for i in range(len(grams)))
    assert repeated_share(said, n) == pytest.approx(1 - different / total if total else 0.0)


def test_long_replies_are_searched_in_no_time() -> None:
    """Near-linear: 200,000 tokens of one word with the paper's N = 40."""
    found = repeated([7] * 200_000, 40)
    assert not found[0]
    assert all(found[1:])


def test_replies_are_unbroken_runs_of_action_tokens() -> None:
    """Two turns in one segment are two replies, also where the segment ends with what was sampled."""
    made = segment([([1, 2], False), ([3, 4], True), ([5], False), ([6], True)])
    assert replies(made) == [(3, 4), (6,)]


def test_scalar_repetition_goes_into_the_reward() -> None:
    """−P·(1 − different/all) on top of the payoff, in either seat that is named and in no other."""
    said = segment([([9], False), ([1, 2, 1, 2, 1], True)])
    made = group([episode(0, [said], 1.0)])
    switched = shaping(repetition=RepetitionPenalty.SCALAR, ngram=2, repetition_scale=3.0)
    (found,) = shape(made, Seat.AGENT, switched, 1)
    assert (found.raw, found.repetition) == (1.0, pytest.approx(-3.0 * (1 - 2 / 4)))
    assert found.repeated == 3
    other = shaping(repetition=RepetitionPenalty.SCALAR, ngram=2, seats=[Seat.ATTACKER])
    assert shape(made, Seat.AGENT, other, 1)[0].reward == 1.0


def test_token_repetition_reaches_its_tokens_and_no_others() -> None:
    """The advantage of every repeated token is lower by 0.05, through packing with shared prefixes as well."""
    rng = random.Random(3)
    prompt = tokens(rng, 40)
    said = [[1, 2, 3, 1, 2, 4], [1, 2, 3, 4], [5, 5, 5], [1, 2, 3, 1, 2, 3]]
    made = group(
        [
            episode(
                i, [segment([(prompt, False), (s, True), ([8], False), (s[:2], True)])], 1.0 * i
            )
            for i, s in enumerate(said)
        ]
    )
    switched = shaping(repetition=RepetitionPenalty.TOKENS, ngram=2)
    algo = AlgoConfig(normalize_std=False)
    plain, _ = build_samples([made], Seat.AGENT, algo)
    samples, counts = build_samples([made], Seat.AGENT, algo, switched)
    marks = [
        [3, 4],
        [],
        [1, 2],
        [3, 4, 5],
    ]  # the second reply, a memory of its own, repeats nothing
    for sample, before, text, marked in zip(samples, plain, said, marks, strict=True):
        assert sample.advantage == before.advantage
        expected = [-0.05 if i in marked else 0.0 for i in range(len(text) + 2)]
        assert list(sample.penalties) == expected
        for share in (0.0, 1e4):
            (batch,) = micro_batches([sample], 1000, share)
            wanted = [before.advantage + p for p in expected]
            assert batch.advantages_N.tolist() == pytest.approx(wanted)
    (shared,) = micro_batches(samples, 1000, share=1e4)
    assert shared.end_BT is not None
    total = sum(s.actions * s.advantage + sum(s.penalties) for s in samples)
    assert float(shared.advantages_N.sum()) == pytest.approx(total, abs=1e-5)
    assert counts.metrics()["penalty_tokens"] == pytest.approx(
        -0.05 * 7 / sum(len(s) + 2 for s in said)
    )
    assert token_penalties(made.episodes[0].segments[Seat.AGENT][0], Seat.AGENT, PLAIN) == ()


# --- what the learner sees --------------------------------------------------------------------------------------


def test_nothing_is_shaped_by_default() -> None:
    """Without a switch the learner sees the payoffs, and the samples are those of before."""
    made = saying([3], [9], [9], rewards=[1.0, -1.0, -1.0])
    assert [s.reward for s in shape(made, Seat.AGENT, PLAIN, 1)] == [1.0, -1.0, -1.0]
    samples, counts = build_samples([made], Seat.AGENT, AlgoConfig())
    assert all(s.penalties == () for s in samples)
    metrics = counts.metrics()
    assert metrics["reward_shaped_mean"] == metrics["reward_mean"] == pytest.approx(-1 / 3)
    assert (metrics["reply_tokens"], metrics["episode_tokens"]) == (7.0, 7.0)


def test_advantages_come_from_shaped_rewards_and_reports_from_raw_ones() -> None:
    """A group that only differs in length is flat in its payoffs, and teaches once length counts."""
    made = saying([2, 2], [8], rewards=[1.0, 1.0])
    switched = shaping(length=LengthPenalty.GROUP, warmup=1)
    algo = AlgoConfig(normalize_std=False)
    flat, counts = build_samples([made], Seat.AGENT, algo, switched, iteration=1)
    assert (flat, counts.groups_flat) == ([], 1)
    assert not teaches(made, Seat.AGENT, switched, 1)
    samples, counts = build_samples([made], Seat.AGENT, algo, switched, iteration=2)
    assert teaches(made, Seat.AGENT, switched, 2)
    assert [s.advantage for s in samples] == [0.5, 0.5, -0.5]
    metrics = counts.metrics()
    assert metrics["reward_mean"] == 1.0
    assert (metrics["reward_shaped_mean"], metrics["penalty_length"]) == (1.0, 0.0)
    assert (metrics["reply_tokens"], metrics["episode_tokens"]) == (4.0, 6.0)
    assert made.episodes[0].rewards == {Seat.AGENT: 1.0}


@pytest.mark.parametrize("baseline", [Baseline.GROUP, Baseline.LEAVE_ONE_OUT])
def test_flat_groups_are_dropped_with_both_group_baselines(baseline: Baseline) -> None:
    """Equal rewards teach nothing, whichever mean they are compared with."""
    flat = saying([2], [8], rewards=[1.0, 1.0])
    live = saying([2], [8], rewards=[1.0, 0.0])
    algo = AlgoConfig(baseline=baseline, normalize_std=False)
    samples, counts = build_samples([flat, live], Seat.AGENT, algo)
    scale = 0.5 if baseline is Baseline.GROUP else 1.0
    assert [(s.group, s.advantage) for s in samples] == [(1, scale), (1, -scale)]
    assert (counts.groups, counts.groups_flat) == (1, 1)


@pytest.mark.parametrize("per_task", [False, True])
def test_with_the_moving_baseline_every_usable_episode_teaches(per_task: bool) -> None:
    """Flat groups and groups of one stay; one average for the seat, or one for each task."""
    flat = saying([2], [8], rewards=[1.0, 1.0])
    one = dataclasses.replace(saying([3], rewards=[0.5]), task="u")
    broken = group([episode(0, [], 0.0, status=Status.ERROR)])
    algo = AlgoConfig(baseline=Baseline.MOVING, normalize_std=False, baseline_per_task=per_task)
    moving = MovingBaseline(0.5)
    samples, counts = build_samples([flat, one, broken], Seat.AGENT, algo, moving=moving)
    assert (counts.groups, counts.groups_flat, counts.groups_small) == (2, 0, 1)
    # b: 0 → 0.5 → 0.75, then 0.625 as the seat's or, from 0 again, 0.25 as the task's.
    last = 0.25 if per_task else 0.625
    assert [s.advantage for s in samples] == [0.5, 0.25, 0.5 - last]
    assert moving.averages == ({"t": 0.75, "u": 0.25} if per_task else {"": 0.625})
    with pytest.raises(ValueError, match="average so far"):
        build_samples([flat], Seat.AGENT, algo)
