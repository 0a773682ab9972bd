"""The measures of near-policy data against plain computations, and the whole measurement on the matrix world."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import matrix_run

from analysis.nearpolicy import (
    as_markdown,
    nearness,
    table,
    training_groups,
    variance,
    write_nearness,
)
from arlas.collect import collect, read_folder
from arlas.config import AlgoConfig, RunConfig
from arlas.nearpolicy import FILLERS, Scorer, fillers, games, measure, reasoning, repeated, score
from arlas.statistics import cluster_bootstrap
from arlas.train import train
from arlas.types import (
    ConfigurationError,
    Episode,
    Outcome,
    PolicyRef,
    Seat,
    Segment,
    Turn,
    Verdict,
)
from tests.conftest import RandomAdapter

AGENT = PolicyRef(Seat.AGENT, "x")
ATTACKER = PolicyRef(Seat.ATTACKER, "x")


# --- text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<think>a b</think><action>c</action>", "a b"),
        ("a b</think><action>c</action>", "a b"),
        ("a <action>c</action>", "a"),
        ("<think>never closed", "never closed"),
        ("<think></think>x", ""),
        ("", ""),
    ],
)
def test_reasoning_is_what_stands_before_the_action(reply: str, expected: str) -> None:
    """Also in replies that could not be parsed."""
    assert reasoning(reply) == expected


def test_repeated_ngrams_are_those_seen_before() -> None:
    """Against a scan of all earlier places, on random words and on the ends of the range."""
    rng = random.Random(0)
    for n in (1, 2, 4):
        for length in (0, 1, 3, 4, 30):
            words = [rng.choice("ab") for _ in range(length)]
            grams = [words[i : i + n] for i in range(max(0, length - n + 1))]
            again = sum(gram in grams[:i] for i, gram in enumerate(grams))
            assert repeated(words, n) == (again, len(grams))


def test_fillers_are_whole_phrases() -> None:
    """Case and white space do not matter, parts of words do not count, longer phrases swallow shorter ones."""
    assert fillers("Okay, let me\n  THINK. Well: of course!") == 4
    assert fillers("swell waiting simplytic in orders") == 0
    assert fillers("So basically this") == 1
    assert fillers("") == 0
    assert len(set(FILLERS)) == len(FILLERS)
    assert all(f == f.lower() and fillers(f) == 1 for f in FILLERS)


# --- log-probabilities ------------------------------------------------------------------------------------


def _segment(rng: random.Random, prompt: list[int], sampled: int) -> Segment:
    ids = (*prompt, *(rng.randrange(200) for _ in range(sampled)))
    mask = (False,) * len(prompt) + (True,) * sampled
    return Segment(ids, mask, (0.0,) * len(ids))


@pytest.mark.parametrize("model", ["tiny-llama", "tiny-gemma3", "tiny-qwen3"])
def test_log_probabilities_are_the_models_own(model: str) -> None:
    """Sums over action tokens at temperature 1 from one full forward pass a segment, shared prompts or not."""
    rng = random.Random(0)
    shared = [rng.randrange(200) for _ in range(40)]
    segments = [_segment(rng, shared, 3 + i) for i in range(4)]
    segments += [Segment((1, 2), (False, False), (0.0, 0.0)), _segment(rng, [5, 6], 2)]
    scorer = Scorer(model, AlgoConfig(device="cpu", micro_batch_tokens=120))
    expected = []
    for one in segments:
        with torch.no_grad():
            log_p = scorer.base(input_ids=torch.tensor([one.token_ids])).logits[0].log_softmax(-1)
        acted = [i for i, m in enumerate(one.action_mask) if m]
        expected.append(sum(float(log_p[i - 1, one.token_ids[i]]) for i in acted))
    assert scorer.sums(segments) == pytest.approx(expected, abs=1e-3)


def _episode(task: str, outcome: Outcome, index: int = 0, reward: float = 0.0) -> Episode:
    rng = random.Random(f"{task}{index}")
    told = "<think>okay go on go on go on</think><action>x</action>"
    turns = tuple(Turn(seat, 0, "", told, "x") for seat in Seat)
    return Episode(
        task,
        1,
        index,
        None,
        ATTACKER,
        AGENT,
        turns=turns,
        segments={s: (_segment(rng, [1, 2, 3], 4), _segment(rng, [9], 1)) for s in Seat},
        verdict=Verdict(exposed=True),
        outcome=outcome,
        rewards={Seat.AGENT: reward, Seat.ATTACKER: -reward},
    )


def test_rows_hold_what_imitation_sees() -> None:
    """Of demonstrations only the winner's seat, of rollouts both; sums over segments and replies."""
    scorer = Scorer("tiny-llama", AlgoConfig(device="cpu"))
    episodes = [_episode("a", Outcome.SUCCESS), _episode("b", Outcome.LEAK, 1)]
    rows = score(episodes, scorer, 2, winners=True)
    assert [(r["task"], r["seat"]) for r in rows] == [("a", "agent"), ("b", "attacker")]
    both = score(episodes, scorer, 2, winners=False)
    assert [(r["task"], r["seat"]) for r in both].count(("a", "attacker")) == 1
    assert len(both) == 4
    segments = episodes[0].segments[Seat.AGENT]
    assert rows[0]["logprob"] == pytest.approx(sum(scorer.sums(segments)), abs=1e-4)
    assert rows[0]["tokens"] == 5
    assert (rows[0]["words"], rows[0]["ngrams"], rows[0]["repeated"]) == (7, 6, 3)
    assert (rows[0]["fillers"], rows[0]["replies"]) == (1, 1)
    assert rows[0]["reasoning_tokens"] == len(scorer.chat.encode("okay go on go on go on"))


# --- ratios and intervals ---------------------------------------------------------------------------------


def _row(task: str, logprob: float, tokens: int, **more: Any) -> dict[str, Any]:
    texts = {"reasoning_tokens": 9, "words": 10, "repeated": 2, "ngrams": 8, "fillers": 1}
    base = {"seat": "agent", "task": task, "seed": 0, "index": 0, "reward": 0.0, "replies": 3}
    return base | texts | {"logprob": logprob, "tokens": tokens} | more


def _made(seed: int, worse: float) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for i in range(60):
        tokens = rng.randrange(3, 90)
        nll = tokens * (1.0 + worse + 0.1 * (i % 6) + 0.2 * rng.random())
        rows.append(_row(f"task {i % 6}", -nll, tokens))
    return rows


def test_perplexities_and_ratios_are_those_of_the_definition() -> None:
    """Token-weighted: all tokens in one; episode-weighted: a mean of means; only tasks that both have."""
    own, reference = _made(0, 0.5), _made(1, 0.0)
    extra = [_row("only here", -900.0, 10)]
    found = nearness("d", "demonstrations", "agent", own + extra, reference)

    def token(rows: list[dict[str, Any]]) -> float:
        return math.exp(sum(-r["logprob"] for r in rows) / sum(r["tokens"] for r in rows))

    def episode(rows: list[dict[str, Any]]) -> float:
        return math.exp(sum(-r["logprob"] / r["tokens"] for r in rows) / len(rows))

    assert found.perplexity == pytest.approx(token(own + extra))
    assert found.perplexity_episodes == pytest.approx(episode(own + extra))
    assert found.ratio == pytest.approx(token(own) / token(reference))
    assert found.ratio_episodes == pytest.approx(episode(own) / episode(reference))
    assert (found.tasks, found.episodes) == (7, 61)
    assert found.repeated == pytest.approx(0.25)
    assert found.fillers == pytest.approx(10.0)
    assert found.reasoning_tokens == pytest.approx(3.0)
    assert found.varied is None
    for key, statistic in (("ratio", token), ("ratio_episodes", episode)):
        rng, drawn = random.Random(3), []
        for _ in range(1500):  # whole tasks with replacement, the same for both sets
            tasks = [f"task {rng.randrange(6)}" for _ in range(6)]
            picked = [[r for t in tasks for r in s if r["task"] == t] for s in (own, reference)]
            drawn.append(statistic(picked[0]) / statistic(picked[1]))
        low, high = np.quantile(drawn, [0.025, 0.975])
        spread = getattr(found, f"{key}_high") - getattr(found, f"{key}_low")
        assert getattr(found, f"{key}_low") == pytest.approx(low, abs=0.15 * spread)
        assert getattr(found, f"{key}_high") == pytest.approx(high, abs=0.15 * spread)


def test_the_reference_is_as_near_as_can_be() -> None:
    """Against itself every ratio and its interval is 1."""
    rows = _made(0, 0.0)
    found = nearness("base", "rollouts", "agent", rows, rows)
    for key in ("ratio", "ratio_low", "ratio_high", "ratio_episodes_low", "ratio_episodes_high"):
        assert getattr(found, key) == pytest.approx(1.0)


def test_the_interval_of_two_clusters_is_their_range() -> None:
    """Of two clusters one is drawn twice half of the time, so the 95 % interval reaches from one to the other."""
    value, low, high = cluster_bootstrap([[1.0, 4.0], [6.0, 2.0]], lambda t: t[:, 0] / t[:, 1])
    assert (value, low, high) == (pytest.approx(7 / 6), 0.25, 3.0)
    assert cluster_bootstrap([[3.0, 4.0]], lambda t: t[:, 0] / t[:, 1]) == (0.75, 0.75, 0.75)
    with pytest.raises(ValueError, match="at least one cluster"):
        cluster_bootstrap(np.zeros((0, 2)), lambda t: t[:, 0])


def test_variance_counts_groups_that_are_not_flat() -> None:
    """By task and seed; lone episodes and faults make no group."""
    rewards = {("a", 0): [1, 1, -1], ("a", 1): [0, 0, 0], ("b", 0): [1, 0], ("c", 0): [1]}
    rows = [
        _row(task, -1.0, 1, seed=seed, reward=reward)
        for (task, seed), values in rewards.items()
        for reward in values
    ] + [_row("d", -1.0, 1, reward=None)] * 2
    found = variance(rows)
    assert (found["groups"], found["group_size"]) == (3, pytest.approx(8 / 3))
    assert found["varied"] == pytest.approx(2 / 3)
    assert 0.5 <= found["varied_low"] <= found["varied"] <= found["varied_high"] <= 1.0
    assert variance([_row("c", -1.0, 1)]) == {}


def test_games_take_all_tasks_in_turn() -> None:
    """Different tasks and seeds, spread over tasks, at most the limit."""
    from dataclasses import replace

    episodes = [replace(_episode("a", Outcome.LEAK), seed=i // 2) for i in range(8)]
    episodes += [replace(_episode("b", Outcome.LEAK), seed=7)]
    assert [(e.task, e.seed) for e in games(episodes, 4)] == [
        ("a", 0),
        ("b", 7),
        ("a", 1),
        ("a", 2),
    ]
    assert len(games(episodes, 99)) == 5


# --- the whole measurement --------------------------------------------------------------------------------


def _config(run_dir: Path, *overrides: str) -> RunConfig:
    return matrix_run(
        run_dir,
        "collect.agent=base",
        "collect.attacker=base",
        "collect.episodes=96",
        "collect.chunk=16",
        "collect.attacked_share=1.0",
        "nearpolicy.groups=6",
        "nearpolicy.group_size=4",
        "sampling.temperature=1.0",
        *overrides,
    )


def test_the_measurement_from_demonstrations_to_the_table(
    tmp_path: Path, random_adapter: RandomAdapter
) -> None:
    """Base and an adapter on the same games; resumable; the CSV says what the rows say."""
    adapter = random_adapter("tiny-llama-words", 3)
    config = _config(tmp_path, f"nearpolicy.policies=[base,'{adapter}']")
    demos = collect(config, tmp_path / "demos")
    out = measure(config)
    index = json.loads((out / "nearpolicy.json").read_text())
    assert [(s["name"], s["kind"]) for s in index["sets"]] == [
        ("demos", "demonstrations"),
        ("base", "rollouts"),
        (str(adapter), "rollouts"),
    ]
    base, other = (read_folder(Path(s["episodes"])) for s in index["sets"][1:])
    assert [(e.task, e.seed) for e in base] == [(e.task, e.seed) for e in other]
    assert {(e.task, e.seed) for e in base} <= {(e.task, e.seed) for e in demos}
    assert Counter(e.agent.adapter is None for e in other) == {False: 24}
    rows = table(out)
    by_name = {(r.name, r.seat): r for r in rows}
    agent = by_name["base", "agent"]
    assert (agent.ratio, agent.groups, agent.group_size) == (pytest.approx(1.0), 6, 4.0)
    assert by_name[str(adapter), "agent"].ratio != pytest.approx(1.0, abs=1e-3)
    won = sum(e.outcome is Outcome.SUCCESS for e in demos)
    assert by_name["demos", "agent"].episodes == won > 0
    assert by_name["demos", "agent"].varied is None
    words, paths = write_nearness(out)
    assert "G = 4" in words
    assert all(p.stat().st_size > 100 for p in paths)
    # killed between two chunks of rollouts: only what is missing is played, to the same episodes
    files = sorted(Path(index["sets"][1]["episodes"]).glob("episodes-*"))
    kept = files[0].stat().st_mtime_ns
    files[1].unlink()
    measure(config)
    assert files[0].stat().st_mtime_ns == kept
    again = read_folder(files[0].parent)
    assert [e.segments for e in again] == [e.segments for e in base]
    assert table(out) == rows


def test_groups_of_training_count_too(tmp_path: Path) -> None:
    """The share of a run's own groups, by iteration and seat, is what the learner kept."""
    train(_config(tmp_path, "algo.iterations=2"))
    metrics = [json.loads(t) for t in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = training_groups(tmp_path)
    assert [(i, seat) for i, seat, _ in found] == [
        (i, seat) for i in (1, 2) for seat in ("agent", "attacker")
    ]
    for i, seat, measures in found:
        flat = metrics[i - 1][f"{seat}/groups_flat"]
        assert measures["varied"] == pytest.approx(1 - flat / measures["groups"])


def test_names_are_data_in_the_table() -> None:
    """A folder's name cannot break out of its cell."""
    found = nearness("a|b <script>", "demonstrations", "agent", _made(0, 0.1), _made(1, 0.0))
    words = as_markdown([found])
    assert "<script>" not in words
    assert len({line.count("|") for line in words.strip().split("\n")}) == 1


def test_missing_parts_are_named(tmp_path: Path) -> None:
    """No demonstrations, an unknown policy, nonsense in the config."""
    config = _config(tmp_path)
    with pytest.raises(ConfigurationError, match="holds no demonstrations"):
        measure(config)
    collect(config, tmp_path / "demos")
    with pytest.raises(ConfigurationError, match="no policy nobody"):
        measure(_config(tmp_path, "nearpolicy.policies=[nobody]"))
    with pytest.raises(ConfigurationError, match=r"nearpolicy\.group_size at least 2"):
        _config(tmp_path, "nearpolicy.group_size=1")
