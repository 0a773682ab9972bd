"""Exact payoffs and exploitability of the matrix games. Pure numpy; no language model here.

Distributions have K+1 entries: one a word, in the game's order, and a last one for everything else (no
attack; a malformed reply). ``attacker_A`` has shape [K+1]. An agent is [K+1] in the hidden game, where it
sees nothing, and [K+1, K+1] in the observed game: row ``k`` is its reply to word ``k``, the last row its
reply to no attack. A loss is the expected breach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.matrix.games import MatrixGame

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Payoffs:
    """Expected outcomes of one episode; with unit values the three sum to 1.

    ``failure`` is the share of episodes without an attack in which the reply was malformed.
    """

    completion: float
    breach: float
    failure: float


@dataclass(frozen=True)
class Equilibrium:
    """Optimal play over the K words, and the agent's loss under it. ``agent`` is [K], in the observed
    game [K, K]; ``attacker`` is [K]."""

    agent: Array
    attacker: Array
    loss: float


def losses(game: MatrixGame, agent: ArrayLike) -> Array:
    """The agent's expected breach under each of the K attacks, shape [K]."""
    table_QR = _table(game, agent)
    count = len(game.words)
    parried_K = table_QR[np.arange(count), list(game.answers)]
    return np.asarray(game.values) * (1.0 - parried_K)


def payoffs(game: MatrixGame, attacker_A: ArrayLike, agent: ArrayLike) -> Payoffs:
    """What an episode between the two brings on average."""
    attack_A = _distribution(attacker_A, len(game.words) + 1, "the attacker")
    table_QR = _table(game, agent)
    count = len(game.words)
    parried_K = table_QR[np.arange(count), list(game.answers)]
    idle, malformed = attack_A[-1], table_QR[-1, -1]
    return Payoffs(
        completion=float(attack_A[:-1] @ parried_K + idle * (1.0 - malformed)),
        breach=float(attack_A[:-1] @ losses(game, agent)),
        failure=float(idle * malformed),
    )


def equilibrium(game: MatrixGame) -> Equilibrium:
    """Optimal play of both seats.

    Observed: the right answer to every word; any attack is as good as another. Hidden, with values v: the
    loss V is the least with Σ max(0, 1 − V/v_k) ≤ 1, which is the largest (m−1) / Σ_{k≤m} 1/v_k over the
    m most valuable doors; the agent guards door k with max(0, 1 − V/v_k), the attacker takes the m doors
    with probability ∝ 1/v_k.
    """
    count = len(game.words)
    if not game.hidden:
        return Equilibrium(np.eye(count)[list(game.answers)], np.full(count, 1.0 / count), 0.0)
    inverse_K = 1.0 / np.asarray(game.values)
    order_K = np.argsort(inverse_K, kind="stable")
    loss_M = np.arange(count) / np.cumsum(inverse_K[order_K])
    best = int(np.argmax(loss_M))
    attacked_K = np.zeros(count)
    attacked_K[order_K[: best + 1]] = inverse_K[order_K[: best + 1]]
    loss = float(loss_M[best])
    guard_K = np.maximum(0.0, 1.0 - loss * inverse_K)
    return Equilibrium(guard_K, attacked_K / attacked_K.sum(), loss)


def exploitability(game: MatrixGame, agent: ArrayLike) -> float:
    """The agent's loss to the best possible attacker, above its equilibrium loss; 0 is best."""
    return float(losses(game, agent).max()) - equilibrium(game).loss


def worst_past(game: MatrixGame, agent: ArrayLike, attackers: Sequence[ArrayLike]) -> float:
    """The agent's loss to the worst of some attackers, above its equilibrium loss.

    Below 0 where every one of them is weaker than equilibrium play. Raises ValueError without attackers.
    """
    if not attackers:
        raise ValueError("worst_past needs at least one attacker")
    attack_NA = [_distribution(a, len(game.words) + 1, "an attacker") for a in attackers]
    loss_K = losses(game, agent)
    return max(float(a[:-1] @ loss_K) for a in attack_NA) - equilibrium(game).loss


def _table(game: MatrixGame, agent: ArrayLike) -> Array:
    size = len(game.words) + 1
    given = np.asarray(agent, dtype=np.float64)
    if game.hidden:
        return np.tile(_distribution(given, size, "the agent of a hidden game"), (size, 1))
    if given.shape != (size, size):
        raise ValueError(
            f"the agent of an observed game must be [{size}, {size}], got {given.shape}"
        )
    return np.stack([_distribution(row, size, "a row of the agent") for row in given])


def _distribution(values: ArrayLike, size: int, what: str) -> Array:
    given = np.asarray(values, dtype=np.float64)
    if given.shape != (size,):
        raise ValueError(f"{what} must have {size} probabilities, got shape {given.shape}")
    if not np.all(given >= -1e-9) or abs(float(given.sum()) - 1.0) > 1e-4:
        raise ValueError(f"{what} is no distribution: {given.tolist()}")
    clipped = np.maximum(given, 0.0)
    return np.asarray(clipped / clipped.sum())
