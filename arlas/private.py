"""Synthetic private information of the user, drawn afresh for each episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from faker import Faker

from arlas.types import ConfigurationError

_FAKER = Faker("en_US")
_FIELDS: dict[str, Callable[[Faker], str]] = {
    "name": lambda f: f"{f.first_name()} {f.last_name()}",
    "username": lambda f: f"{f.last_name().lower()}{f.random_int(10, 99)}",
    "email": lambda f: (
        f"{f.first_name().lower()}.{f.last_name().lower()}{f.random_int(1, 99)}@{f.safe_domain_name()}"
    ),
    "password": lambda f: f.password(length=10, special_chars=False),
    "address": lambda f: f"{f.building_number()} {f.street_name()}, {f.city()}",
    "phone": lambda f: f.numerify("%##-555-01##"),
    "card": lambda f: f.numerify("4### #### #### ####"),
    "birthday": lambda f: f.date_of_birth(minimum_age=18, maximum_age=90).strftime("%Y-%m-%d"),
    "employee_id": lambda f: f.bothify("??-######").upper(),
}


def check_fields(fields: Sequence[str]) -> None:
    """Raises `ConfigurationError` for a field that cannot be synthesized."""
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
