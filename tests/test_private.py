"""Synthetic people: seeded, harmless to honest text, and hidden from others."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fakes import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from arlas.private import Curtain, check_fields, synthesize
from arlas.seeding import derive
from arlas.types import ConfigurationError

FIELDS = "name email password address phone card username birthday employee_id".split()
USER = {"name": "Amy O'Connor", "email": "amy.lee7@example.org", "card": "4929 1057 3386 2204"}


def test_same_seed_same_person() -> None:
    """Also in another process, and whatever was drawn before."""
    people = [synthesize(FIELDS, s) for s in range(50)]
    assert [synthesize(FIELDS, s) for s in reversed(range(50))][::-1] == people
    assert len({p["password"] for p in people}) == 50
    code = f"from arlas.private import synthesize; print(synthesize({FIELDS!r}, 7))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert out.stdout.strip() == repr(people[7])


def test_fields_look_like_themselves() -> None:
    """Shapes that tasks can rely on; addresses of mail that nobody owns."""
    import re

    shapes = {
        "email": r"[a-z.]+\d+@example\.(com|org|net)",
        "password": r"[A-Za-z0-9]{10}",
        "phone": r"\d{3}-555-\d{4}",
        "card": r"4\d{3} \d{4} \d{4} \d{4}",
        "birthday": r"(19|20)\d\d-\d\d-\d\d",
        "employee_id": r"[A-Z]{2}-\d{6}",
        "username": r"[a-z]+\d\d",
        "name": r"[A-Z][a-z]+ \w+",
    }
    for seed in range(100):
        person = synthesize(FIELDS, seed)
        for name, shape in shapes.items():
            assert re.fullmatch(shape, person[name]), (name, person[name])


def test_unknown_fields_are_refused() -> None:
    """The message lists what can be drawn."""
    with pytest.raises(ConfigurationError, match=r"unknown shoe, hat; choose from name, username"):
        check_fields(["name", "shoe", "hat"])
    with pytest.raises(ConfigurationError):
        synthesize(["shoe"], 1)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Hello Amy O'Connor!", "Hello [name]!"),
        ("AMY o connor", "[name]"),
        ("first Amy last Connor", "first [name] last [name]"),
        ("amy.lee7@example.org", "[email]"),
        ("user amy.lee7 here", "user [email] here"),
        ("4929105733862204", "[card]"),
        ("4929-1057-3386-2204", "[card]"),
        ("box 4929 box 1057", "box [card] box [card]"),
        ("[12] button 929", "[12] button 929"),
        ("Amyloid connors", "Amyloid connors"),
        ("example.org", "example.org"),
        ("", ""),
    ],
)
def test_the_curtain_hides_values_however_they_are_written(text: str, hidden: str) -> None:
    """Case, spacing and punctuation aside; ids and other words stay."""
    assert Curtain(USER)(text) == hidden


@given(st.integers(0, 500), st.text(max_size=20), st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_nothing_private_is_left_in_any_text(seed: int, before: str, after: str) -> None:
    """Every value of every field, inside any text."""
    person = synthesize(FIELDS, seed)
    hide = Curtain(person)
    for value in person.values():
        assert value.casefold() not in hide(f"{before}{value}{after}").casefold()
    assert hide("click the button, then 12") == "click the button, then 12"


def test_nobody_has_nothing_to_hide() -> None:
    """No user fields: the text stays; values that are regular expressions are text too."""
    assert Curtain({})("Amy") == "Amy"
    assert Curtain({"name": ""})("Amy") == "Amy"
    assert Curtain({"name": "(a+)+$ [x"})("aaaa") == "aaaa"


def test_seeds_follow_from_their_parts() -> None:
    """Stable (`b2sum -l 64` of "0/rollout/3", halved), different for different places, and within 63 bits."""
    assert derive(1, "a") == derive(1, "a") != derive(1, "b")
    assert derive(0, "rollout", 3) == 7028342466154490321
    found = {derive(i, j) for i in range(100) for j in range(100)}
    assert len(found) == 10_000
    assert all(0 <= s < 2**63 for s in found)
