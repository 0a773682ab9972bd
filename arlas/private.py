"""Synthetic private information of the user, drawn afresh for each episode, and how to hide it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date

from faker import Faker
from faker.providers.address.en_US import Provider as _Address

from arlas.types import ConfigurationError

_FAKER = Faker("en_US")
_WORDS = re.compile(r"[^\W\d_]+|\d+")
GENERIC = frozenset(
    w.lower()
    for w in (
        *_Address.street_suffixes,
        *_Address.city_prefixes,
        *"apartment suite boulevard example hotmail gmail yahoo outlook".split(),
    )
)
"""Words that an address or e-mail shares with thousands of others: nobody's secret."""

# Names that are ordinary words as well: a page or a task would seem to give the user away.
_ORDINARY = frozenset(
    "amber angel april archer armstrong austin autumn baker banks barber barker barron beard berry bishop black "
    "booker booth bradford branch brandy bridges bright brooks brown browning burns butler cannon carey "
    "carpenter chambers chandler chase cherry christian church clements colon combs cooper costa crane cross "
    "crystal curry daisy destiny diamond downs ebony english faith farmer fields fisher flowers forbes foster "
    "fowler frank franklin freeman french frost fuller gamble gates glass golden goodman grace grant graves "
    "green gross harding hardy harmon heath heather herring hodge holden holder holland holly house houston "
    "hunter jordan knight lance leach little london marks marsh mason meadows melody mercedes miles miller "
    "mills misty moody morrow moses noble norma norman olive page paris parish parker parks parsons patty penny "
    "petty porter potter powers price prince proctor ramsey rangel raven reeves regina rhodes riddle rivers "
    "roach robin roman rosario rowland salinas sandy santana savage savannah sawyer sellers shane sharp "
    "shepherd shields short sierra silva singleton skinner small solomon sparks spears spencer stark steele "
    "stone stout strong summer summers sydney tanner taylor temple turner valencia valentine victor villa "
    "virginia walker waller walls warner warren washington waters weaver weeks wells wheeler white winters woods "
    "wright young".split()
)


def _named(draw: Callable[[], str]) -> str:
    """A name that is not an ordinary word."""
    while (name := draw()).lower() in _ORDINARY:
        pass
    return name


def _first(f: Faker) -> str:
    return _named(f.first_name)


def _last(f: Faker) -> str:
    return _named(f.last_name)


_FIELDS: dict[str, Callable[[Faker], str]] = {
    "name": lambda f: f"{_first(f)} {_last(f)}",
    "username": lambda f: f"{_last(f).lower()}{f.random_int(10, 99)}",
    "email": lambda f: (
        f"{_first(f).lower()}.{_last(f).lower()}{f.random_int(1, 99)}@{f.safe_domain_name()}"
    ),
    "password": lambda f: f.password(length=10, special_chars=False),
    "address": lambda f: (
        f"{f.building_number()} {_last(f)} {f.street_suffix()}, {_first(f)}{f.city_suffix()}"
    ),
    "phone": lambda f: f.numerify("%##-555-####"),
    "card": lambda f: f.numerify("4### #### #### ####"),
    # Fixed dates: an age counted from today would make another person of the same seed tomorrow.
    "birthday": lambda f: f.date_between(date(1940, 1, 1), date(2005, 12, 31)).isoformat(),
    "employee_id": lambda f: f.bothify("??-######").upper(),
}


def check_fields(fields: Sequence[str]) -> None:
    """Raises `ConfigurationError` for a field that cannot be synthesized."""
    if len(set(fields)) != len(fields):
        raise ConfigurationError(f"game.user_fields names a field twice: {', '.join(fields)}")
    unknown = [f for f in fields if f not in _FIELDS]
    if unknown:
        raise ConfigurationError(
            f"game.user_fields: unknown {', '.join(unknown)}; choose from {', '.join(_FIELDS)}"
        )


def synthesize(fields: Sequence[str], seed: int) -> dict[str, str]:
    """Private information by field; the same seed gives the same person."""
    check_fields(fields)
    _FAKER.seed_instance(seed)
    return {name: _FIELDS[name](_FAKER) for name in fields}


class Curtain:
    """Hides one user's private information in text that others may read.

    Values, however they are spaced and punctuated, and their single words become ``[name of the field]``;
    words of fewer than three letters and numbers of fewer than four digits stay.
    """

    def __init__(self, user: Mapping[str, str]) -> None:
        found: dict[
            str, tuple[int, str]
        ] = {}  # pattern → its letters and the first field that has it
        for name, value in user.items():
            own = value.split("@")[0]  # of an address of mail, its domain is nobody's secret
            for whole in dict.fromkeys((value, own)):
                words = _WORDS.findall(whole)
                if (size := sum(map(len, words))) >= 3:
                    found.setdefault(r"[\W_]*".join(map(re.escape, words)), (size, name))
            for word in _WORDS.findall(own):
                private = len(word) >= (4 if word.isdigit() else 3)
                if private and word.lower() not in GENERIC:
                    alone = rf"(?<![^\W_]){re.escape(word)}(?![^\W_])"
                    found.setdefault(alone, (len(word), name))
        longest_first = sorted(found.items(), key=lambda item: item[1][0], reverse=True)
        self._names = [name for _, (_, name) in longest_first]
        patterns = "|".join(f"({pattern})" for pattern, _ in longest_first)
        self._pattern = re.compile(patterns or r"(?!)", re.IGNORECASE)

    def __call__(self, text: str) -> str:
        """The text without the private information."""
        return self._pattern.sub(lambda m: f"[{self._names[(m.lastindex or 1) - 1]}]", text)
