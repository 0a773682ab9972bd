"""The population: how opponents are drawn, and which adapters stay loaded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fakes import Fake, chat_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from arlas.choices import Draw, OpponentPer
from arlas.config import PopulationConfig
from arlas.population import AdapterCache, Member, Population
from arlas.types import ConfigurationError, PolicyRef, Seat

MEMBERS = [
    Member("base", 0, "iterations/0000/attacker", episodes=8, wins=0),
    Member("rl-1", 1, "iterations/0001/attacker", episodes=8, wins=4),
    Member("rl-2", 2, "iterations/0002/attacker", episodes=18, wins=14),
    Member("rl-5", 5, "iterations/0005/attacker"),
]

# By hand. recency with half-life 2: 2^(-5/2), 2^(-4/2), 2^(-3/2), 1.
# pfsp with power 2 of (wins + 1)/(episodes + 2): 0.1, 0.5, 0.75, 0.5.
EXPECTED = {
    Draw.UNIFORM: [1, 1, 1, 1],
    Draw.LATEST: [0, 0, 0, 1],
    Draw.RECENCY: [0.1767767, 0.25, 0.3535534, 1],
    Draw.PFSP: [0.01, 0.25, 0.5625, 0.25],
}


@pytest.mark.parametrize("draw", list(Draw))
def test_draws_follow_their_weights(draw: Draw) -> None:
    """20,000 draws against weights computed by hand (chi-square, p > 0.001)."""
    config = PopulationConfig(draw=draw, half_life=2.0, pfsp_power=2.0)
    population = Population(config, MEMBERS)
    weights = [w / sum(EXPECTED[draw]) for w in EXPECTED[draw]]
    assert population.weights() == pytest.approx(weights, abs=1e-6)
    rng, counts = random.Random(1), dict.fromkeys((m.version for m in MEMBERS), 0)
    for _ in range(20_000):
        counts[population.draw(1, rng)[0].version] += 1
    met = [(counts[m.version], w * 20_000) for m, w in zip(MEMBERS, weights, strict=True) if w]
    assert sum(c for c, _ in met) == 20_000
    if len(met) > 1:
        assert chisquare([c for c, _ in met], [e for _, e in met]).pvalue > 0.001


def test_invariant_05_one_opponent_a_group_unless_told_otherwise() -> None:
    """per=group: the same attacker for all episodes; per=episode: one each."""
    rng = random.Random(0)
    population = Population(PopulationConfig(), MEMBERS)
    groups = [population.draw(16, rng) for _ in range(50)]
    assert all(len(g) == 16 and len(set(g)) == 1 for g in groups)
    assert len({g[0] for g in groups}) == 4
    each = Population(PopulationConfig(per=OpponentPer.EPISODE), MEMBERS).draw(64, rng)
    assert len(each) == 64
    assert len(set(each)) == 4


def test_same_random_state_same_opponents() -> None:
    """Draws follow from the generator alone."""
    a, b = (
        [Population(PopulationConfig(), MEMBERS).draw(2, random.Random(s)) for s in range(20)]
        for _ in range(2)
    )
    assert a == b


def test_an_empty_population_is_refused() -> None:
    """No attacker, no draw: said clearly."""
    for draw in Draw:
        with pytest.raises(ConfigurationError, match="the population is empty"):
            Population(PopulationConfig(draw=draw)).draw(2, random.Random(0))


def test_size_forgets_the_oldest() -> None:
    """population.size=2 keeps the two newest; 0 keeps all."""
    small, whole = Population(PopulationConfig(size=2)), Population(PopulationConfig())
    for member in MEMBERS:
        small.add(member)
        whole.add(member)
    assert [m.version for m in small.members] == ["rl-2", "rl-5"]
    assert len(whole.members) == 4
    assert small.latest.version == "rl-5"


def test_members_are_policies_and_count_their_wins() -> None:
    """A member's reference names its adapter; records add up by version; state reads back."""
    population = Population(PopulationConfig(draw=Draw.PFSP), MEMBERS)
    assert population.latest.ref == PolicyRef(Seat.ATTACKER, "rl-5", "attacker-0005")
    population.record("rl-1", 4, 3)
    population.record("nobody", 9, 9)
    assert (population.members[1].episodes, population.members[1].wins) == (12, 7)
    assert population.members[0] == MEMBERS[0]
    again = Population.from_state(population.config, population.state())
    assert again.members == population.members


def cache(limit: int) -> tuple[AdapterCache, Fake]:
    policy = Fake(chat_of(), lambda _: "")
    return AdapterCache(policy, limit), policy


def paths(*names: str) -> dict[str, Path]:
    return {n: Path(n) for n in names}


def test_the_least_recently_used_adapter_leaves() -> None:
    """At most `limit` are loaded; use counts, not age."""
    adapters, policy = cache(2)
    adapters.ensure(paths("a"))
    adapters.ensure(paths("b"))
    adapters.ensure(paths("a"))
    adapters.ensure(paths("c"))
    assert policy.log == ["+a", "+b", "-b", "+c"]
    assert set(policy.adapters()) == {"a", "c"}


def test_pins_stay_and_take_no_room() -> None:
    """A pinned adapter is never evicted nor counted, and pinning one costs no other its place."""
    adapters, policy = cache(2)
    adapters.ensure(paths("a", "b"))
    adapters.pin("agent", Path("agent"))
    assert set(policy.adapters()) == {"a", "b", "agent"}
    adapters.ensure(paths("c", "d"))
    assert set(policy.adapters()) == {"c", "d", "agent"}
    adapters.pin("agent-2", Path("agent-2"))
    adapters.drop("agent")
    assert set(policy.adapters()) == {"c", "d", "agent-2"}
    adapters.drop("agent-2")
    adapters.drop("unknown")
    assert set(policy.adapters()) == {"c", "d"}


@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3), max_size=12))
@settings(max_examples=100, deadline=None)
def test_everything_wanted_is_loaded_and_never_too_much(wishes: list[set[str]]) -> None:
    """After each call all of it is there, evictions come before loads, and never more than limit + pins."""
    adapters, policy = cache(3)
    adapters.pin("p", Path("p"))
    for wish in wishes:
        adapters.ensure(paths(*sorted(wish)))
        assert wish <= set(policy.adapters())
        assert "p" in policy.adapters()
        assert len(set(policy.adapters())) == len(policy.adapters()) <= 4
