"""A seeded company: who works there, and everyday data in every app for the tasks to stand among."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs.enterprise.workspace import Workspace

FIRST = tuple(
    "Dana Priya Marco Ingrid Tomas Aisha Kenji Lucia Oskar Nadia Felix Ruth Samir Greta Pavel Yara Hugo Mei Ivan "
    "Selma Bruno Noor Elias Petra Joao Freya Amir Tessa Viktor Leila Emil Rosa Anton Sofia Jonas Hana Mateo Clara".split()
)
LAST = tuple(
    "Reyes Kowalski Lindqvist Okafor Tanaka Moreau Haddad Novak Ferrari Brandt Castillo Petrov Nakamura Duarte Keller "
    "Svensson Rossi Varga Demir Hoffmann Silveira Bakker Jensen Mehta Laurent Dvorak Sorensen Ibarra Walden Costa".split()
)
NAMES = (
    "Northwind",
    "Bluecrest",
    "Halden",
    "Orrery",
    "Quillon",
    "Tessel",
    "Marlow",
    "Kestrel",
    "Fennick",
    "Larkspur",
)
TEAMS = ("Sales", "Engineering", "Finance", "Operations", "Support", "Marketing")
TITLES = {
    "Sales": ("Account Executive", "Sales Manager"),
    "Engineering": ("Software Engineer", "Engineering Manager", "Site Reliability Engineer"),
    "Finance": ("Accountant", "Controller"),
    "Operations": ("Office Manager", "Operations Lead"),
    "Support": ("Support Specialist", "Support Lead"),
    "Marketing": ("Content Editor", "Campaign Manager"),
}  # fmt: skip


@dataclass(frozen=True)
class Person:
    """An employee."""

    handle: str
    name: str
    email: str
    title: str
    team: str

    @property
    def first(self) -> str:
        """The first name."""
        return self.name.split()[0]


@dataclass(frozen=True)
class Company:
    """The people of a workspace; the first one is the user whose assistant acts."""

    name: str
    domain: str
    people: tuple[Person, ...]

    @property
    def me(self) -> Person:
        """The user."""
        return self.people[0]

    @property
    def others(self) -> tuple[Person, ...]:
        """Everybody but the user."""
        return self.people[1:]


def found(workspace: Workspace, rng: random.Random, size: int = 14, firsts: Sequence[str] = FIRST,
          lasts: Sequence[str] = LAST, names: Sequence[str] = NAMES) -> Company:  # fmt: skip
    """Draws a company and enters its people into the directory."""
    name = rng.choice(names)
    domain = f"{name.lower()}.{rng.choice(('com', 'io', 'co'))}"
    people = []
    for first, last in zip(rng.sample(firsts, size), rng.sample(lasts, size), strict=True):
        team = rng.choice(TEAMS)
        handle = f"{first[0]}{last}".lower()
        email = f"{first}.{last}@{domain}".lower()
        people.append(Person(handle, f"{first} {last}", email, rng.choice(TITLES[team]), team))
    for p in people:
        workspace.insert(
            "people", handle=p.handle, name=p.name, email=p.email, title=p.title, team=p.team
        )
    workspace.me, workspace.company, workspace.domain = people[0].handle, name, domain
    return Company(name, domain, tuple(people))
