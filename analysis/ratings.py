"""Who is strong in a cross-play: the empirical game of attackers against agents, solved and rated.

The attacker's payoff is the attack success rate or the rate of tasks that were not done; the agent's is its negative.
Nash mixtures and exploitability by linear programming (von Neumann), α-rank (Omidshafiei et al., Scientific Reports 9,
2019), and Elo ratings as the maximum likelihood of Bradley and Terry's model, which does not depend on the order of games.
Intervals come from draws of every cell's rate out of its Beta(k + ½, n − k + ½) (Jeffreys), episodes taken as independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog, minimize

from analysis.crossplay import stages
from analysis.report import table as markdown_table
from arlas.statistics import NO_ATTACK, CrossplayRow
from arlas.text import markdown

Floats = NDArray[np.float64]
MEASURES = {"asr": "attack success rate", "failure": "share of tasks that were not done"}
_ELO = 400 / math.log(10)


# --- games of two ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Solution:
    """An equilibrium of a zero-sum game: both mixtures, and the value for the rows."""

    rows_A: Floats
    columns_B: Floats
    value: float


def solve(payoff_AB: ArrayLike) -> Solution:
    """Nash equilibrium of a zero-sum game in which the rows maximize. Raises ValueError on no finite matrix."""
    payoff = _matrix(payoff_AB)
    low = payoff.min()
    # For x ≥ 0 with (payoff − low + 1)ᵀ x ≥ 1, least Σx is 1 / value: the classic form.
    shifted = payoff - low + 1.0
    rows = linprog(np.ones(len(shifted)), A_ub=-shifted.T, b_ub=-np.ones(shifted.shape[1]))
    columns = linprog(-np.ones(shifted.shape[1]), A_ub=shifted, b_ub=np.ones(len(shifted)))
    if not (rows.success and columns.success):
        raise ValueError(f"the linear programs failed: {rows.message} {columns.message}")
    return Solution(
        rows.x / rows.x.sum(), columns.x / columns.x.sum(), float(1 / rows.x.sum() + low - 1.0)
    )


def exploitability(payoff_AB: ArrayLike, rows_A: ArrayLike, columns_B: ArrayLike) -> float:
    """What both sides together gain by best responses to the other's mixture (NashConv); 0 in equilibrium."""
    payoff = _matrix(payoff_AB)
    return float((payoff @ np.asarray(columns_B)).max() - (np.asarray(rows_A) @ payoff).min())


def gaps(payoff_AB: ArrayLike, value: float) -> tuple[Floats, Floats]:
    """How far each strategy, played alone, falls behind the value against the other side's best response.

    Rows [A]: value − its worst column. Columns [B]: its worst row − value. All ≥ 0 up to rounding.
    """
    payoff = _matrix(payoff_AB)
    return value - payoff.min(axis=1), payoff.max(axis=0) - value


def alpha_rank(
    payoff_AB: ArrayLike, alpha: float = 10.0, population: int = 50
) -> tuple[Floats, Floats]:
    """The share of time that evolving populations of rows and columns spend at each strategy.

    One mutant at a time takes over its population with the probability of Moran's process at selection strength
    ``alpha`` (payoffs of one game of two; the columns get the negative). Raises ValueError on no finite matrix.
    """
    payoff = _matrix(payoff_AB)
    a, b = payoff.shape
    share = 1.0 / max(1, a + b - 2)
    move = np.zeros((a, b, a, b))
    for i in range(a):
        for j in range(b):
            for k in set(range(a)) - {i}:
                move[i, j, k, j] = share * fixation(payoff[k, j] - payoff[i, j], alpha, population)
            for k in set(range(b)) - {j}:
                move[i, j, i, k] = share * fixation(payoff[i, j] - payoff[i, k], alpha, population)
    stay = stationary(move.reshape(a * b, a * b)).reshape(a, b)
    return stay.sum(axis=1), stay.sum(axis=0)


def alpha_rank_symmetric(payoff_SS: ArrayLike, alpha: float = 10.0, population: int = 50) -> Floats:
    """`alpha_rank` of one population whose members play a symmetric game among themselves."""
    payoff = _matrix(payoff_SS)
    n = len(payoff)
    move = np.zeros((n, n))
    for i in range(n):
        for k in set(range(n)) - {i}:
            gain = payoff[k, i] - payoff[i, k]
            move[i, k] = fixation(gain, alpha, population) / max(1, n - 1)
    return stationary(move)


def fixation(gain: float, alpha: float, population: int) -> float:
    """Probability that a mutant with so much more payoff takes over a population of this size."""
    strength = alpha * gain
    if abs(strength) < 1e-12:
        return 1.0 / population
    if strength > 0:
        return math.expm1(-strength) / math.expm1(-population * strength)
    # e^{…} taken out of both, so that neither overflows
    weight = math.exp((population - 1) * strength)
    return weight * math.expm1(strength) / math.expm1(population * strength)


def stationary(move_SS: Floats) -> Floats:
    """Where a Markov chain with these moves between different states spends its time.

    The elimination of Grassmann, Taksar and Heyman (1985) subtracts nothing, so moves of any size count. A state
    that cannot be left takes all; moves so rare that they are 0 in floats are raised to the least positive number.
    """
    left = np.maximum(np.asarray(move_SS, dtype=np.float64), np.finfo(np.float64).tiny)
    np.fill_diagonal(left, 0.0)
    n = len(left)
    for s in range(n - 1, 0, -1):
        left[:s, s] /= left[s, :s].sum()
        left[:s, :s] += np.outer(left[:s, s], left[s, :s])
    stay = np.zeros(n)
    stay[0] = 1.0
    for s in range(1, n):
        stay[s] = stay[:s] @ left[:s, s]
        stay[: s + 1] /= stay[: s + 1].max()
    found: Floats = stay / stay.sum()
    return found


def elo(wins_AB: ArrayLike, games_AB: ArrayLike, prior: float = 0.5) -> tuple[Floats, Floats]:
    """Elo ratings of rows and columns from wins of rows in games against columns; their mean is 0.

    A difference of 400 means odds of 10 to 1. Every pair that played gets ``prior`` further wins and losses, so that
    who never lost has a finite rating. Raises ValueError on impossible counts, or if some did not play at all.
    """
    wins, games = np.asarray(wins_AB, np.float64), np.asarray(games_AB, np.float64)
    if wins.shape != games.shape or wins.ndim != 2 or not wins.size:
        raise ValueError(
            f"wins and games must be matrices of one shape: {wins.shape}, {games.shape}"
        )
    if (wins < 0).any() or (wins > games).any():
        raise ValueError("there are more wins than games, or fewer than none")
    if not _connected(games > 0):
        raise ValueError("ratings compare only players that are linked by games")
    played = games > 0
    won, lost = wins + prior * played, games - wins + prior * played
    a = len(wins)

    def loss(strengths: Floats) -> tuple[float, Floats]:
        odds = strengths[:a, None] - strengths[None, a:]
        value = (won * np.logaddexp(0, -odds) + lost * np.logaddexp(0, odds)).sum()
        slope = (won + lost) / (1 + np.exp(-odds)) - won
        return float(value), np.concatenate([slope.sum(1), -slope.sum(0)])

    found = minimize(loss, np.zeros(sum(wins.shape)), jac=True, method="L-BFGS-B",
                     options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 10_000})  # fmt: skip
    ratings = _ELO * (found.x - found.x.mean())
    return ratings[:a], ratings[a:]


def _connected(edges_AB: NDArray[np.bool_]) -> bool:
    """Whether all rows and columns hang together."""
    rows = np.zeros(len(edges_AB), dtype=bool)
    rows[0] = True
    for _ in range(sum(edges_AB.shape)):
        columns = edges_AB[rows].any(axis=0)
        rows |= edges_AB[:, columns].any(axis=1)
    return bool(rows.all() and edges_AB[rows].any(axis=0).all())


def _matrix(payoff: ArrayLike) -> Floats:
    found = np.asarray(payoff, dtype=np.float64)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise ValueError(f"a payoff matrix must be finite and not empty, got shape {found.shape}")
    return found


# --- from a cross-play -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rating:
    """One player: share in the Nash mixture, gap to the value, α-rank share, and Elo, each with its 95 % interval."""

    side: str
    name: str
    episodes: int
    nash: tuple[float, float, float]
    gap: tuple[float, float, float]
    alpha: tuple[float, float, float]
    elo: tuple[float, float, float]


@dataclass(frozen=True)
class Ratings:
    """All players of a cross-play, the value of the game between them, and attackers that nothing is known of."""

    measure: str
    value: tuple[float, float, float]
    players: tuple[Rating, ...]
    unknown: tuple[str, ...]


def counts(
    rows: Sequence[CrossplayRow], measure: str = "asr"
) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """(attackers, agents, wins_AB, trials_AB, attackers left out), seeds added up.

    Of attacks that no agent ever saw nothing is known; their attackers are left out. Raises ValueError if a pair of the
    others is missing, or nothing is left.
    """
    if measure not in MEASURES:
        raise ValueError(f"the measure must be one of {', '.join(MEASURES)}, got {measure}")
    attackers = [a for a in stages(r.attacker for r in rows) if a != NO_ATTACK]
    agents = stages(r.player for r in rows)
    found: dict[tuple[str, str], list[int]] = {}
    for r in rows:
        wins, trials = (
            (r.leaks, r.exposed) if measure == "asr" else (r.episodes - r.successes, r.episodes)
        )
        cell = found.setdefault((r.attacker, r.player), [0, 0])
        cell[0] += wins
        cell[1] += trials
    unknown = tuple(a for a in attackers if not any(found.get((a, b), (0, 0))[1] for b in agents))
    attackers = [a for a in attackers if a not in unknown]
    missing = [
        f"{a} against {b}" for a in attackers for b in agents if not found.get((a, b), (0, 0))[1]
    ]
    if missing:
        raise ValueError(
            f"nothing was counted for {', '.join(missing)}: play these pairs, or leave policies out with --without"
        )
    if not attackers or not agents:
        raise ValueError("there is no attacker that any agent saw")
    both = np.array([[found[a, b] for b in agents] for a in attackers], dtype=np.int64)
    return tuple(attackers), agents, both[..., 0], both[..., 1], unknown


def rate(
    rows: Sequence[CrossplayRow], measure: str = "asr", draws: int = 400, seed: int = 0
) -> Ratings:
    """Solves and rates a cross-play. Raises ValueError as `counts` does."""
    attackers, agents, wins, trials, unknown = counts(rows, measure)
    rng = np.random.default_rng(seed)
    drawn = rng.beta(wins + 0.5, trials - wins + 0.5, size=(draws, *wins.shape))
    value, *measured = _intervals(
        lambda rates: _measured(rates, trials), wins / trials, drawn, len(attackers)
    )
    players = []
    sides = [("attacker", a) for a in attackers] + [("agent", b) for b in agents]
    games = [*trials.sum(axis=1), *trials.sum(axis=0)]
    for at, ((side, name), episodes) in enumerate(zip(sides, games, strict=True)):
        players.append(Rating(side, name, int(episodes), *(m[at] for m in measured)))
    return Ratings(measure, value[0], tuple(players), unknown)


def _measured(rates: Floats, trials: NDArray[np.int64]) -> list[Floats]:
    """The value [1], and nash, gap, α-rank and Elo of rows and columns [A + B]."""
    solution = solve(rates)
    ratings = elo(rates * trials, trials)
    pairs = [
        (solution.rows_A, solution.columns_B),
        gaps(rates, solution.value),
        alpha_rank(rates),
        ratings,
    ]
    return [np.array([solution.value]), *(np.concatenate(p) for p in pairs)]


def _intervals(
    of: Callable[[Floats], list[Floats]], rates: Floats, drawn: Floats, rows: int
) -> list[list[tuple[float, float, float]]]:
    point, samples = of(rates), [of(d) for d in drawn]
    told = []
    for at, values in enumerate(point):
        low, high = np.quantile(np.array([s[at] for s in samples]), [0.025, 0.975], axis=0)
        told.append(
            [(float(v), float(lo), float(hi)) for v, lo, hi in zip(values, low, high, strict=True)]
        )
    return told


def ratings_markdown(found: Ratings) -> str:
    """The table in words."""
    head = ("side", "policy", "episodes", "Nash share", "gap to the value", "α-rank share", "Elo")
    cells = [
        [
            p.side,
            markdown(p.name),
            str(p.episodes),
            *(_told(x, 100.0, "%") for x in (p.nash, p.gap, p.alpha)),
            _told(p.elo, 1.0, ""),
        ]
        for p in found.players
    ]
    lines = [
        "# Ratings",
        f"Payoff of the attacker: {MEASURES[found.measure]}. Value of the game between these policies: "
        f"{_told(found.value, 100.0, '%')}. In brackets 95 % intervals from Jeffreys draws of every cell. The gap is what a "
        "policy played alone gives away to the other side's best response. Elo: 400 points are odds of 10 to 1.",
        markdown_table(head, cells),
    ]
    if found.unknown:
        names = ", ".join(map(markdown, found.unknown))
        lines.append(f"Left out, as no agent ever saw their attacks: {names}.")
    return "\n\n".join(lines) + "\n"


def _told(interval: tuple[float, float, float], scale: float, unit: str) -> str:
    value, low, high = (round(scale * x) + 0 for x in interval)
    gap = " " if unit else ""
    return f"{value}{gap}{unit} [{low}, {high}]"
