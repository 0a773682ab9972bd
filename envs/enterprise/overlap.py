"""Whether tasks are really different from one another, and the splits and suites apart."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from envs.enterprise.apps.control import ENDINGS
from envs.enterprise.tasks.catalog import SUITES, build, catalog, split_of
from envs.enterprise.tasks.spec import Kind, Suite

THRESHOLD = 0.5
"""Share of common word trigrams (Jaccard) from which two texts count as near-duplicates."""
SEEDS = range(3)
_MASKED = re.compile(r"\S*[@#/:_\d]\S*|\"[^\"]*\"")
_WORD = re.compile(r"[a-z]+|•")


def trigrams(text: str, names: Iterable[str] = ()) -> frozenset[tuple[str, ...]]:
    """A text's word trigrams; addresses, numbers, quotations and the given names are one word, whichever they are."""
    text = _MASKED.sub("•", text.lower())
    for name in names:
        text = re.sub(rf"\b{re.escape(name.lower())}\b", "•", text)
    words = _WORD.findall(text)
    return frozenset(zip(words, words[1:], words[2:], strict=False))


def similarity(a: frozenset[tuple[str, ...]], b: frozenset[tuple[str, ...]]) -> float:
    """Jaccard similarity of two sets, in [0, 1]."""
    return len(a & b) / len(a | b) if a | b else 0.0


def overlaps(names: Sequence[str]) -> list[str]:
    """Near-duplicates among tasks, and anything that two suites or the two splits share, in words.

    Texts are compared between different assignments and orders, and between different attacks, over some seeds.
    """
    found = _alike(_texts(names, attacks=False), "instructions")
    found += _alike(_texts(names, attacks=True), "requests")
    suites = sorted({catalog()[n][0].name for n in names})
    for one, two in itertools.combinations(suites, 2):
        found += shared(SUITES[one], SUITES[two])
    return found + _split_leaks(names)


def _texts(names: Sequence[str], attacks: bool) -> dict[str, list[frozenset[tuple[str, ...]]]]:
    """Trigrams of every assignment's and order's instructions, or of every attack's requests."""
    first: dict[str, str] = {}
    for name in names:
        _, task = catalog()[name]
        part = task.attack if attacks else task.assignment or task.order
        if part is not None:
            first.setdefault(part.name, name)
    texts: dict[str, list[frozenset[tuple[str, ...]]]] = {}
    for part_name, name in first.items():
        for seed in SEEDS:
            built = build(name, seed)
            people = [
                w
                for r in built.workspace.rows("SELECT name FROM people")
                for w in r["name"].split()
            ]
            text = built.harm.request if attacks and built.harm else built.instruction
            texts.setdefault(part_name, []).append(trigrams(text, people))
            built.workspace.close()
    return texts


def _alike(texts: dict[str, list[frozenset[tuple[str, ...]]]], what: str) -> list[str]:
    found = []
    for (one, a), (two, b) in itertools.combinations(texts.items(), 2):
        most = max(similarity(x, y) for x in a for y in b)
        if most >= THRESHOLD:
            found.append(
                f"{what} of {one} and {two} are alike: {most:.2f} of their word trigrams are common"
            )
    return found


def shared(one: Suite, two: Suite) -> list[str]:
    """What two suites have in common and must not: apps, tools, names of parts, notes, people, companies."""
    pairs = {
        "apps": (set(one.apps), set(two.apps)),
        "tools": (_tools(one), _tools(two)),
        "assignments": ({a.name for a in one.assignments}, {a.name for a in two.assignments}),
        "attacks": ({a.name for a in one.attacks}, {a.name for a in two.attacks}),
        "orders": ({o.name for o in one.orders}, {o.name for o in two.orders}),
        "entities": (set(one.entities), set(two.entities)),
    }
    return [
        f"suites {one.name} and {two.name} share {what}: {', '.join(sorted(a & b))}"
        for what, (a, b) in pairs.items()
        if a & b
    ]


def _tools(suite: Suite) -> set[str]:
    return {t.name for a in suite.apps.values() for t in a.tools} - set(ENDINGS)


def _split_leaks(names: Sequence[str]) -> list[str]:
    """Assignments, attacks and orders that stand on both sides of the split."""
    parts: dict[str, set[str]] = {"train": set(), "eval": set(), "none": set()}
    for name in names:
        _, task = catalog()[name]
        if task.kind is Kind.ATTACK:
            assert task.assignment is not None
            assert task.attack is not None
            parts[split_of(name)] |= {task.assignment.name, task.attack.name}
        elif task.order is not None:
            parts[split_of(name)].add(task.order.name)
    both = sorted(parts["train"] & parts["eval"])
    return [f"on both sides of the split: {', '.join(both)}"] if both else []
