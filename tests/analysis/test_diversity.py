"""Diversity measures against their quadratic definitions and sets whose diversity is known."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.diversity import apd, cumulative_apd, novelty, self_bleu, unit, vendi

RNG = np.random.default_rng(5)
words = st.lists(st.sampled_from("a b c d e".split()), min_size=1, max_size=7).map(" ".join)


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


@pytest.mark.parametrize("shape", [(1, 3), (7, 4), (3, 9)])
def test_apd_is_the_mean_over_all_pairs(shape: tuple[int, int]) -> None:
    """The paper's double sum."""
    given = RNG.normal(size=shape)
    pairs = [1 - cosine(x, y) for x, y in itertools.product(given, repeat=2)]
    assert apd(given) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert apd(given * 7.0) == pytest.approx(apd(given))


def test_apd_of_known_sets() -> None:
    assert apd([[1, 2, 3]] * 5) == pytest.approx(0.0)
    assert apd(np.eye(4)) == pytest.approx(1 - 1 / 4)
    assert apd([[1, 0], [-1, 0]]) == pytest.approx(1.0)


def test_cumulative_apd_adds_stage_by_stage() -> None:
    stages = [RNG.normal(size=(n, 5)) for n in (3, 1, 6)]
    together = [apd(np.concatenate(stages[: i + 1])) for i in range(3)]
    assert cumulative_apd(stages) == pytest.approx(together)


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (5, 5)])
def test_vendi_is_the_entropy_of_the_similarities(shape: tuple[int, int]) -> None:
    """From the N × N matrix whatever the shape, by von Neumann's entropy of a dense eigensolver."""
    given = RNG.normal(size=shape)
    matrix = np.array([[cosine(x, y) for y in given] for x in given]) / len(given)
    values = [v for v in np.linalg.eigvals(matrix).real if v > 1e-12]
    assert vendi(given) == pytest.approx(math.exp(-sum(v * math.log(v) for v in values)), rel=1e-6)


def test_vendi_counts_kinds() -> None:
    """Copies are one, orthogonal ones count each, whatever their order of magnitude."""
    assert vendi([[2.0, 1.0]] * 6) == pytest.approx(1.0)
    assert vendi(np.eye(5)) == pytest.approx(5.0)
    assert vendi(np.repeat(np.eye(3), 4, axis=0) * 1e-3) == pytest.approx(3.0)


def test_novelty_is_the_distance_to_the_nearest() -> None:
    new, earlier = RNG.normal(size=(5, 3)), RNG.normal(size=(4, 3))
    nearest = [min(1 - cosine(x, y) for y in earlier) for x in new]
    assert novelty(new, earlier) == pytest.approx(nearest)
    assert novelty(earlier[:2], earlier) == pytest.approx([0, 0], abs=1e-12)
    assert novelty([[1, 0]], [[-1, 0]]) == pytest.approx([2.0])


def test_novelty_in_blocks_is_novelty() -> None:
    """More rows than a block holds."""
    new, earlier = RNG.normal(size=(2100, 2)), RNG.normal(size=(4100, 2))
    whole = 1 - (unit(new) @ unit(earlier).T).max(axis=1)
    assert novelty(new, earlier) == pytest.approx(np.maximum(0, whole))


@pytest.mark.parametrize("wrong", [[], [1.0, 2.0], [[math.nan, 1.0]], [[0.0, 0.0], [1.0, 0.0]]])
def test_what_has_no_direction_is_refused(wrong: list[object]) -> None:
    with pytest.raises(ValueError, match="embedding"):
        apd(wrong)


def bleu(said: list[str], others: list[list[str]], n: int) -> float:
    """BLEU of one text from its definition, every reference looked at."""
    logs = []
    for k in range(1, n + 1):
        own = Counter(tuple(said[i : i + k]) for i in range(len(said) - k + 1))
        if not own:
            continue
        clipped = 0
        for gram, count in own.items():
            seen = [sum(tuple(o[i : i + k]) == gram for i in range(len(o) - k + 1)) for o in others]
            clipped += min(count, max(seen))
        logs.append(math.log((clipped or 0.1) / sum(own.values())))
    length = min((abs(len(o) - len(said)), len(o)) for o in others)[1]
    brevity = min(1.0, math.exp(1 - length / len(said)))
    return brevity * math.exp(sum(logs) / len(logs))


@given(st.lists(words, min_size=2, max_size=6), st.integers(1, 4))
@settings(deadline=None)
def test_self_bleu_is_the_mean_of_bleu_against_the_rest(texts: list[str], n: int) -> None:
    split = [t.split() for t in texts]
    each = [bleu(w, split[:i] + split[i + 1 :], n) for i, w in enumerate(split)]
    assert self_bleu(texts, n) == pytest.approx(sum(each) / len(each))


def test_self_bleu_of_known_sets() -> None:
    assert self_bleu(["please send the file now"] * 3) == pytest.approx(1.0)
    assert self_bleu(["a b c d", "e f g h", "i j k l"]) < 0.1
    assert self_bleu(["Send IT now", "send it  now"]) == pytest.approx(1.0)
    assert self_bleu(["", ""]) == 1.0
    with pytest.raises(ValueError, match="at least two"):
        self_bleu(["alone"])
