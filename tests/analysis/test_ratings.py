"""Ratings against games whose answers are known, and against brute force."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.ratings import (
    alpha_rank,
    alpha_rank_symmetric,
    counts,
    elo,
    exploitability,
    fixation,
    gaps,
    rate,
    ratings_markdown,
    solve,
    stationary,
)
from arlas.statistics import CrossplayRow, cell_row

ROOT = Path(__file__).resolve().parents[2]
ROCK = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
matrices = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    elements=st.floats(-2, 2).map(lambda x: round(x, 3)),
)


# --- Nash ------------------------------------------------------------------------------------------------


def test_rock_paper_scissors_is_played_evenly() -> None:
    """The one equilibrium; a pure strategy is exploited for a whole game by either side."""
    found = solve(ROCK)
    assert found.rows_A == pytest.approx([1 / 3] * 3)
    assert found.columns_B == pytest.approx([1 / 3] * 3)
    assert found.value == pytest.approx(0.0, abs=1e-12)
    assert exploitability(ROCK, [1, 0, 0], [1 / 3] * 3) == pytest.approx(1.0)
    assert exploitability(ROCK, [1, 0, 0], [1, 0, 0]) == pytest.approx(2.0)
    rows, columns = gaps(ROCK, found.value)
    assert rows == pytest.approx([1.0] * 3)
    assert columns == pytest.approx([1.0] * 3)


def test_two_by_two_games_have_the_textbook_s_mixtures() -> None:
    """(d − c) / (a − b − c + d) where no strategy dominates."""
    a, b, c, d = 0.9, 0.2, 0.1, 0.6
    found = solve([[a, b], [c, d]])
    total = a - b - c + d
    assert found.rows_A == pytest.approx([(d - c) / total, (a - b) / total])
    assert found.columns_B == pytest.approx([(d - b) / total, (a - c) / total])
    assert found.value == pytest.approx((a * d - b * c) / total)


def test_a_transitive_game_has_a_pure_answer() -> None:
    """Stronger attackers against stronger agents: the strongest meet."""
    strengths = np.arange(4)
    payoff = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    found = solve(payoff)
    assert found.rows_A == pytest.approx([0, 0, 0, 1])
    assert found.columns_B == pytest.approx([0, 0, 0, 1])
    assert found.value == pytest.approx(0.5)


@given(matrices)
@settings(deadline=None, max_examples=60)
def test_no_deviation_pays_in_equilibrium(payoff: np.ndarray) -> None:
    """Checked over all pure strategies, which is enough; and the value lies between maximin and minimax."""
    found = solve(payoff)
    assert found.rows_A.sum() == pytest.approx(1.0)
    assert found.columns_B.sum() == pytest.approx(1.0)
    assert exploitability(payoff, found.rows_A, found.columns_B) == pytest.approx(0.0, abs=1e-8)
    assert payoff.min(axis=1).max() - 1e-8 <= found.value <= payoff.max(axis=0).min() + 1e-8
    rows, columns = gaps(payoff, found.value)
    assert rows.min() >= -1e-8
    assert columns.min() >= -1e-8


@pytest.mark.parametrize("payoff", [[], [[math.nan]], [[math.inf, 1.0]], [1.0, 2.0]])
def test_what_is_no_game_is_refused(payoff: list[object]) -> None:
    with pytest.raises(ValueError, match="payoff matrix"):
        solve(payoff)


# --- α-rank ----------------------------------------------------------------------------------------------


def test_alpha_rank_of_known_games() -> None:
    """A cycle is shared evenly, a ladder goes to its top, and prisoners defect."""
    assert alpha_rank_symmetric(ROCK) == pytest.approx([1 / 3] * 3)
    ladder = np.sign(np.arange(4)[:, None] - np.arange(4)[None, :]).astype(float)
    assert alpha_rank_symmetric(ladder) == pytest.approx([0, 0, 0, 1], abs=1e-3)
    prisoners = np.array([[3.0, 0.0], [5.0, 1.0]])
    assert alpha_rank_symmetric(prisoners) == pytest.approx([0, 1], abs=1e-6)


def test_matching_pennies_is_a_cycle_of_both_populations() -> None:
    rows, columns = alpha_rank([[1.0, -1.0], [-1.0, 1.0]])
    assert rows == pytest.approx([0.5, 0.5])
    assert columns == pytest.approx([0.5, 0.5])


def test_the_sink_of_a_dominated_game_takes_all() -> None:
    rows, columns = alpha_rank([[0.8, 0.5], [0.4, 0.1]])
    assert rows == pytest.approx([1, 0], abs=1e-3)
    assert columns == pytest.approx([0, 1], abs=1e-3)


@given(st.floats(-3, 3), st.integers(2, 40))
@settings(deadline=None)
def test_fixation_is_that_of_a_moran_process(gain: float, population: int) -> None:
    """Against the chain of births and deaths solved step by step: with one mutant more, odds e^{−gain} to lose it."""
    total = sum(math.exp(-gain * k) for k in range(population))
    assert fixation(gain, 1.0, population) == pytest.approx(1 / total, rel=1e-6)


def test_fixation_at_extremes() -> None:
    assert fixation(0.0, 10.0, 50) == 1 / 50
    assert fixation(1.0, 1e3, 50) == pytest.approx(1.0)
    assert fixation(-1.0, 1e4, 50) == 0.0


@given(arrays(np.float64, (5, 5), elements=st.floats(1e-3, 1.0)))
@settings(deadline=None, max_examples=40)
def test_a_chain_spends_its_time_where_powers_of_it_do(move: np.ndarray) -> None:
    """Against the eigenvector by repeated squaring."""
    np.fill_diagonal(move, 0.0)
    chain = move / 6
    np.fill_diagonal(chain, 1 - chain.sum(axis=1))
    limit = np.linalg.matrix_power(chain, 2**20)[0]
    assert stationary(move) == pytest.approx(limit / limit.sum(), rel=1e-6)


# --- Elo -------------------------------------------------------------------------------------------------


def test_elo_recovers_the_ratings_that_made_the_games() -> None:
    """Expected wins under known ratings give these back, whatever the numbers of games."""
    rows, columns = np.array([150.0, -50.0, 20.0]), np.array([0.0, -120.0])
    rows, columns = rows - 0.0, columns - (rows.sum() + columns.sum()) / 2
    games = np.array([[100.0, 30.0], [50.0, 900.0], [10.0, 10.0]])
    wins = games / (1 + 10 ** ((columns[None] - rows[:, None]) / 400))
    found_rows, found_columns = elo(wins, games, prior=0.0)
    shift = (rows.sum() + columns.sum()) / 5
    assert found_rows == pytest.approx(rows - shift, abs=1e-3)
    assert found_columns == pytest.approx(columns - shift, abs=1e-3)


def test_a_player_who_never_lost_has_a_finite_rating() -> None:
    rows, columns = elo([[20]], [[20]])
    assert rows[0] - columns[0] == pytest.approx(400 * math.log10(20.5 / 0.5), rel=1e-6)


@pytest.mark.parametrize(
    ("wins", "games", "told"),
    [
        ([[3]], [[2]], "more wins"),
        ([[1, 0], [0, 1]], [[2, 0], [0, 2]], "linked by games"),
        ([[1]], [[1, 2]], "one shape"),
    ],
)
def test_impossible_games_are_refused(
    wins: list[list[int]], games: list[list[int]], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        elo(wins, games)


# --- cross-play ------------------------------------------------------------------------------------------


def _row(attacker: str, agent: str, leaks: int, exposed: int = 20, seed: int = 0) -> CrossplayRow:
    return cell_row(attacker, agent, seed, episodes=24, exposed=exposed, leaks=leaks, successes=12)


def _table() -> list[CrossplayRow]:
    leaks = {("sft", "sft"): 8, ("sft", "rl-1"): 2, ("rl-1", "sft"): 12, ("rl-1", "rl-1"): 5}
    rows = [_row(a, b, n) for (a, b), n in leaks.items()]
    rows += [_row("none", b, 1, exposed=0) for b in ("sft", "rl-1")]
    return rows + [_row("base", b, 0, exposed=0) for b in ("sft", "rl-1")]


def test_a_cross_play_is_solved() -> None:
    """The better attacker meets the better agent; no attack is no player; attacks that nobody saw are named."""
    found = rate(_table(), draws=50)
    by = {(p.side, p.name): p for p in found.players}
    assert set(by) == set(itertools.product(("attacker", "agent"), ("sft", "rl-1")))
    assert found.unknown == ("base",)
    assert found.value[0] == pytest.approx(0.25)
    assert by["attacker", "rl-1"].nash[0] == by["agent", "rl-1"].nash[0] == 1.0
    assert by["attacker", "sft"].gap[0] == pytest.approx(0.25 - 0.1)
    assert by["agent", "sft"].gap[0] == pytest.approx(0.6 - 0.25)
    assert by["attacker", "rl-1"].elo[0] > by["attacker", "sft"].elo[0]
    assert by["attacker", "rl-1"].episodes == 40
    for p in found.players:
        for value, low, high in (p.gap, p.elo):
            assert low <= value <= high
    assert "no agent ever saw their attacks: base" in ratings_markdown(found)


def test_seeds_are_added_up_and_gaps_in_the_table_refused() -> None:
    more = [*_table(), _row("sft", "rl-1", 4, seed=1)]
    _, agents, wins, trials, _ = counts(more)
    assert agents == ("sft", "rl-1")
    assert (wins[0, 1], trials[0, 1]) == (6, 40)
    with pytest.raises(ValueError, match="rl-1 against sft"):
        counts([r for r in _table() if (r.attacker, r.agent) != ("rl-1", "sft")])
    with pytest.raises(ValueError, match="measure"):
        counts(more, "wins")
    with pytest.raises(ValueError, match="no attacker"):
        counts([r for r in more if r.attacker == "none"])


def test_the_value_s_interval_covers_the_truth() -> None:
    """Simulated cross-plays of a known game: about 95 % of the intervals hold its value (a pure equilibrium)."""
    truth = np.array([[0.3, 0.2], [0.55, 0.4]])
    rng = np.random.default_rng(1)
    held = 0
    for trial in range(40):
        drawn = rng.binomial(60, truth)
        rows = [
            _counted(f"rl-{i}", f"rl-{j}", int(drawn[i, j]), 60) for i in range(2) for j in range(2)
        ]
        _, low, high = rate(rows, draws=60, seed=trial).value
        held += low <= 0.4 <= high
    assert held >= 33


def _counted(attacker: str, agent: str, leaks: int, n: int) -> CrossplayRow:
    return cell_row(attacker, agent, 0, episodes=n, exposed=n, leaks=leaks, successes=0)


def test_the_script_rates_a_saved_table(tmp_path: Path) -> None:
    """From the repository's own result; a table with gaps is refused in one line."""
    table = ROOT / "results" / "miniwob_cpu" / "crossplay-train-seed0.csv"
    command = [sys.executable, str(ROOT / "scripts" / "ratings.py"), str(table)]
    done = subprocess.run(
        [*command, "--without", "base", "--out", str(tmp_path / "r.md")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "| attacker | rl-10 |" in done.stdout
    assert (tmp_path / "r.md").read_text() in done.stdout
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
