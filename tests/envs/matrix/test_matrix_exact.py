"""Exact payoffs and exploitability, against linear programming and exhaustive play."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from envs.matrix import MatrixEnv, find_game
from envs.matrix.exact import equilibrium, exploitability, losses, payoffs, worst_past

GAMES = [
    find_game("hidden"),
    find_game("hidden-2"),
    find_game("hidden", [1.0, 0.6, 0.3]),
    find_game("hidden", [1.0, 0.9, 0.1]),
    find_game("observed"),
    find_game("observed-6"),
    find_game("observed-3", [0.2, 1.0, 0.7]),
]
NAMES = [f"{g.name}{g.values}" for g in GAMES]


def breach_matrix(game):
    """B[attack, strategy] by playing the real environment, over all of the agent's pure strategies."""
    words = game.words
    strategies = (
        [(w,) * len(words) for w in words]
        if game.hidden
        else list(itertools.product(words, repeat=len(words)))
    )
    env = MatrixEnv(game.name, game.values)
    matrix = np.zeros((len(words), len(strategies)))
    for (a, attack), (s, strategy) in itertools.product(enumerate(words), enumerate(strategies)):
        env.reset()
        env.plant(attack)
        matrix[a, s] = env.step(strategy[a])[4]["verdict"].breach
    return matrix


def game_value(matrix):
    """The minimax loss by linear programming: min V with B x ≤ V, x a distribution."""
    attacks, strategies = matrix.shape
    solved = linprog(
        c=[0.0] * strategies + [1.0],
        A_ub=np.hstack([matrix, -np.ones((attacks, 1))]),
        b_ub=np.zeros(attacks),
        A_eq=[[1.0] * strategies + [0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * strategies + [(None, None)],
    )
    assert solved.success
    return solved.fun


def draw_agent(game, rng):
    size = len(game.words) + 1
    return rng.dirichlet(np.full(size, 0.5), None if game.hidden else size)


def row(game, agent, shown):
    """The agent's distribution when attack number ``shown`` was planted (K: none)."""
    return agent if game.hidden else agent[shown]


@pytest.mark.parametrize("game", [g for g in GAMES if g.name != "observed-6"], ids=str)
def test_equilibrium_loss_is_the_value_of_the_linear_program(game):
    """The closed form gives the same value as LP over all pure strategies, for both seats."""
    matrix = breach_matrix(game)
    solved = equilibrium(game)
    assert solved.loss == pytest.approx(game_value(matrix), abs=1e-9)
    assert solved.attacker.sum() == pytest.approx(1.0)
    # the attacker's side: no pure strategy of the agent loses less against its mixture
    assert (solved.attacker @ matrix).min() >= solved.loss - 1e-9


@pytest.mark.parametrize("game", GAMES, ids=NAMES)
def test_equilibrium_play_has_exploitability_zero(game):
    """The optimal agent cannot be exploited, and every other one can, or is as good."""
    optimal = equilibrium(game).agent
    padded = np.pad(optimal, [(0, 0)] * (optimal.ndim - 1) + [(0, 1)])
    if not game.hidden:
        padded = np.vstack([padded, padded[:1]])
    assert exploitability(game, padded) == pytest.approx(0.0, abs=1e-12)
    rng = np.random.default_rng(0)
    assert all(exploitability(game, draw_agent(game, rng)) > 0 for _ in range(50))


def test_the_classic_figures():
    """Three doors: uniform guarding loses 2/3, always guarding one door loses 1, silence loses 1."""
    game = find_game("hidden")
    assert equilibrium(game).loss == pytest.approx(2 / 3)
    assert exploitability(game, [1 / 3, 1 / 3, 1 / 3, 0]) == pytest.approx(0.0)
    assert exploitability(game, [1, 0, 0, 0]) == pytest.approx(1 / 3)
    assert exploitability(game, [0, 0, 0, 1]) == pytest.approx(1 / 3)
    assert exploitability(game, [0.3, 0.3, 0.3, 0.1]) == pytest.approx(0.7 - 2 / 3)


@pytest.mark.parametrize("game", GAMES, ids=NAMES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_payoffs_equal_exhaustive_play(game, seed):
    """Expected outcomes equal the sum over every pair of moves played in the real environment."""
    rng = np.random.default_rng(seed)
    attacker, agent = rng.dirichlet(np.ones(len(game.words) + 1)), draw_agent(game, rng)
    env = MatrixEnv(game.name, game.values)
    expected = np.zeros(3)
    moves = (*game.words, "nonsense")
    for (a, attack), (r, reply) in itertools.product(enumerate(moves), enumerate(moves)):
        env.reset()
        env.plant(attack)
        verdict = env.step(reply)[4]["verdict"]
        neither = float(verdict.completion == 0.0 and verdict.breach == 0.0)
        weight = attacker[a] * row(game, agent, a)[r]
        expected += weight * np.array([verdict.completion, verdict.breach, neither])
    got = payoffs(game, attacker, agent)
    assert [got.completion, got.breach, got.failure] == pytest.approx(expected.tolist())


@pytest.mark.parametrize("game", GAMES, ids=NAMES)
def test_exploitability_is_the_worst_case_over_all_attackers(game):
    """No mixed attacker does better than the reported best response, and one pure one does as well."""
    rng = np.random.default_rng(1)
    agent = draw_agent(game, rng)
    best = exploitability(game, agent)
    mixed = [rng.dirichlet(np.ones(len(game.words) + 1)) for _ in range(200)]
    pure = list(np.eye(len(game.words) + 1))
    assert worst_past(game, agent, mixed) <= best + 1e-12
    assert worst_past(game, agent, pure) == pytest.approx(best)
    # one attacker at a time, by the payoffs
    singly = max(payoffs(game, a, agent).breach for a in mixed) - equilibrium(game).loss
    assert worst_past(game, agent, mixed) == pytest.approx(singly)


def test_worst_past_is_raw_and_needs_attackers():
    """A weak past attacker gives a negative figure in the hidden game; none at all is an error."""
    game = find_game("hidden")
    assert worst_past(game, [1, 0, 0, 0], [[1, 0, 0, 0]]) == pytest.approx(-2 / 3)
    with pytest.raises(ValueError, match="at least one attacker"):
        worst_past(game, [1, 0, 0, 0], [])


@pytest.mark.parametrize(
    "agent", [[0.5, 0.5, 0.5, 0.5], [1.0, 0.0, 0.0], [1.5, -0.5, 0.0, 0.0], [[0.25] * 4] * 4]
)
def test_what_is_no_distribution_is_refused(agent):
    """Wrong shapes and sums are errors, never silently normalized."""
    with pytest.raises(ValueError, match=r"no distribution|probabilities"):
        losses(find_game("hidden"), agent)
    with pytest.raises(ValueError, match=r"\[5, 5\]"):
        losses(find_game("observed"), [0.2] * 5)
