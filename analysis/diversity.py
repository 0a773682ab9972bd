"""How different attacks are: measures of embeddings and of texts. Pure functions; none is quadratic in memory.

Embeddings are rows [N, D]; only their directions count. Work and memory grow linearly with N, but for `novelty`, whose
work grows with new × earlier.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_ROWS = 2048


def unit(embeddings_ND: ArrayLike) -> Floats:
    """The rows at length 1. Raises ValueError on anything but a finite matrix with directions."""
    given = np.asarray(embeddings_ND, dtype=np.float64)
    if given.ndim != 2 or not given.size or not np.isfinite(given).all():
        raise ValueError(f"embeddings must be a finite matrix [N, D], got shape {given.shape}")
    lengths = np.linalg.norm(given, axis=1, keepdims=True)
    if (lengths == 0).any():
        raise ValueError("an embedding is zero: it has no direction")
    found: Floats = given / lengths
    return found


def apd(embeddings_ND: ArrayLike) -> float:
    """Average pairwise cosine distance, pairs of one with itself included (ARLAS, Fig. 5): 1 − ‖mean‖², in [0, 1]."""
    mean_D = unit(embeddings_ND).mean(axis=0)
    return float(max(0.0, 1.0 - mean_D @ mean_D))


def cumulative_apd(stages: Sequence[ArrayLike]) -> list[float]:
    """`apd` of the attacks of the first stage, of the first two, and so on."""
    total: Floats | None = None
    count, found = 0, []
    for stage in stages:
        rows = unit(stage)
        total = rows.sum(axis=0) if total is None else total + rows.sum(axis=0)
        count += len(rows)
        found.append(float(max(0.0, 1.0 - total @ total / count**2)))
    return found


def vendi(embeddings_ND: ArrayLike) -> float:
    """The effective number of different attacks, from 1 to min(N, D) (Friedman and Dieng, TMLR 2023).

    exp of the entropy of the eigenvalues of K / N, K the cosines; taken from the smaller of [N, N] and [D, D].
    """
    rows = unit(embeddings_ND)
    gram = rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows
    values = np.linalg.eigvalsh(gram / len(rows))
    values = values[values > 1e-15]
    return float(np.exp(-(values * np.log(values)).sum()))


def novelty(new_ND: ArrayLike, earlier_MD: ArrayLike) -> Floats:
    """For each new attack the cosine distance to the nearest earlier one, in [0, 2]."""
    new, earlier = unit(new_ND), unit(earlier_MD)
    nearest = np.full(len(new), -1.0)
    for i in range(0, len(new), _ROWS):
        block = new[i : i + _ROWS]
        for j in range(0, len(earlier), _ROWS):
            cosines = (block @ earlier[j : j + _ROWS].T).max(axis=1)
            nearest[i : i + _ROWS] = np.maximum(nearest[i : i + _ROWS], cosines)
    found: Floats = np.maximum(0.0, 1.0 - nearest)
    return found


def self_bleu(texts: Sequence[str], n: int = 4) -> float:
    """Mean BLEU of each text against all others (Zhu et al., SIGIR 2018): 1 for copies, low for diverse sets.

    Words are split at spaces, in lower case; an n-gram that matches nothing counts 0.1 (Chen and Cherry's first
    smoothing), and texts too short for some n are judged by the shorter ones. Raises ValueError with fewer than two texts.
    """
    if len(texts) < 2 or n < 1:
        raise ValueError("self-BLEU needs at least two texts and n of at least 1")
    words = [t.lower().split() for t in texts]
    lengths = Counter(map(len, words))
    orders = [[_grams(w, k) for w in words] for k in range(1, n + 1)]
    most = [_most(counts) for counts in orders]
    scores = []
    for i, said in enumerate(words):
        logs = []
        for counts, best in zip(orders, most, strict=True):
            total = counts[i].total()
            if total:
                clipped = sum(min(c, _others(best[g], c)) for g, c in counts[i].items())
                logs.append(math.log((clipped or 0.1) / total))
        if not logs:
            scores.append(1.0 if lengths[0] > 1 else 0.0)
            continue
        scores.append(_brevity(len(said), lengths) * math.exp(sum(logs) / len(logs)))
    return sum(scores) / len(scores)


def _grams(words: Sequence[str], k: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + k]) for i in range(len(words) - k + 1))


def _most(counts: Sequence[Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], tuple[int, int]]:
    """The two highest counts that any text has of each n-gram."""
    found: dict[tuple[str, ...], tuple[int, int]] = {}
    for counter in counts:
        for gram, c in counter.items():
            first, second = found.get(gram, (0, 0))
            found[gram] = (c, first) if c >= first else (first, max(second, c))
    return found


def _others(best: tuple[int, int], own: int) -> int:
    """The highest count among the other texts."""
    return best[1] if own == best[0] else best[0]


def _brevity(length: int, lengths: Counter[int]) -> float:
    """BLEU's brevity penalty against the other text that is nearest in length, the shorter one of two."""
    others = (k for k, c in lengths.items() if c > (k == length))
    nearest = min(others, key=lambda k: (abs(k - length), k))
    return 1.0 if length >= nearest else math.exp(1 - nearest / length)
