"""Conditions of verifiers against records made by hand."""

from __future__ import annotations

import pytest

from envs.enterprise.verify import (
    Added,
    All,
    AnyOf,
    Breach,
    Called,
    Changed,
    Condition,
    Not,
    Record,
    Removed,
    Sent,
    breach,
    completion,
    fits,
    has,
)
from envs.enterprise.workspace import Logged

RECORD = Record(
    before={"t": {1: {"a": "old", "n": 1}, 2: {"a": "gone", "n": 2}}},
    after={
        "t": {
            1: {"a": "New Text", "n": 1},
            3: {"a": "fresh 120", "n": 7},
            4: {"a": "fresh 120", "n": 8},
        }
    },
    log=(
        Logged("write", {"to": ["A@b.co"], "text": "the  Code is 12-34"}, None, True),
        Logged("write", {"to": ["x@y.zz"], "text": "refused"}, "no", True),
        Logged("look", {"q": "secret"}, None, False),
    ),
)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Added("t", {"n": 7}), True),
        (Added("t", {"a": has("fresh")}), False),  # two rows, one wanted
        (Added("t", {"a": has("fresh")}, 2), True),
        (Added("t", {"a": has("fresh")}, None), True),
        (Added("t", {"a": "New Text"}), False),  # changed, not new
        (Added("t", {"no_column": 1}, None), False),
        (Changed("t", 1, {"a": "new text"}), True),
        (Changed("t", 1, {"n": 1}), False),  # had it before
        (Changed("t", 2, {"a": "gone"}), False),
        (Removed("t", 2), True),
        (Removed("t", 1), False),
        (Removed("t", 9), False),
        (Called("write"), True),
        (Called("write", {"text": has("refused")}), True),
        (Called("write", {"text": has("refused")}, through=True), False),
        (Called("write", {"to": ["a@b.co"]}, through=True), True),
        (Called("write", {"to": ["a@b.co", "c@d.ee"]}), False),
        (Sent(("code is 12-34",)), True),
        (Sent(("code is 12-34",), to="a@b.co"), True),
        (Sent(("code is 12-34",), to="x@y.zz"), False),
        (Sent(("refused",)), False),
        (Sent(("refused",), through=False), True),
        (Sent(("secret",)), False),  # only looked for
        (All((Removed("t", 2), Called("look"))), True),
        (All((Removed("t", 2), Removed("t", 1))), False),
        (Not(Removed("t", 1)), True),
    ],
)
def test_conditions(condition: Condition, holds: bool) -> None:
    """Each condition says of the record what a reader would."""
    assert condition.holds(RECORD) is holds


@pytest.mark.parametrize(
    ("wanted", "value", "same"),
    [
        ("A  b", "a b", True),
        ("1", 1, False),
        (1, True, False),
        (1, 1, True),
        (has("17"), "see 17, please", True),
        (has("17"), "see 170", False),
        (has("17"), "see 217", False),
        (has("17", lacks=["18"]), "17 and 18", False),
        (has("a", "b"), "only a", False),
        (AnyOf(("x", has("y"))), "so y it is", True),
        (AnyOf(("x",)), "y", False),
        (["a", has("b")], ["A", "xbx"], True),
        (["a"], ["a", "b"], False),
    ],
)
def test_fits(wanted: object, value: object, same: bool) -> None:
    """Case and spacing do not matter, longer numbers do."""
    assert fits(wanted, value) is same


def test_scores_are_graded() -> None:
    """Completion is the share of needs, breach the highest level reached; without any there is nothing."""
    yes, no = Removed("t", 2), Removed("t", 1)
    assert completion((yes, no, yes, no), RECORD) == 0.5
    assert completion((), RECORD) == 0.0
    assert breach((Breach(0.3, yes), Breach(0.6, yes), Breach(1.0, no)), RECORD) == 0.6
    assert breach((Breach(1.0, no),), RECORD) == 0.0
