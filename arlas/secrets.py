"""What secrets look like: patterns for the output filter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----")
_API_KEY = re.compile(
    r"\b[sprk]k[-_](?:(?:live|test|proj|ant|prod)[-_])?[A-Za-z0-9_-]{16,}"  # Stripe, OpenAI, Anthropic
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"  # AWS
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"  # GitHub, GitLab
    r"|\bxox[abeprs]-[\w-]{10,}"  # Slack
    r"|\bAIza[\w-]{30,}"  # Google
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"  # JSON web tokens
)
# A name that says secret, and behind it a value with a digit in it; an address of a page is none.
_CREDENTIAL = re.compile(
    r"(?:password|passwd|passphrase|pwd|secret|token|api[ _-]?key|access[ _-]?key|credential)\w{0,20}"
    r"[\"']?\s{0,3}(?:is|[:=]|=>)\s{0,3}[\"'`]?(?!https?://)(?=[^\s\"'`]{0,80}\d)([^\s\"'`]{6,})",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.]\d|\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b")


def _all(pattern: re.Pattern[str], group: int = 0) -> Callable[[str], Iterator[str]]:
    return lambda text: (m[group] for m in pattern.finditer(text))


def _cards(text: str) -> Iterator[str]:
    return (m[0] for m in _CARD.finditer(text) if luhn(m[0]))


def ibans(text: str) -> Iterator[str]:
    """Account numbers whose check digits are right; words behind one may look like more of it."""
    for m in _IBAN.finditer(text):
        parts = m[0].split(" ")
        whole = (" ".join(parts[:n]) for n in range(len(parts), 0, -1))
        yield from (w for w in [next((w for w in whole if checked(w)), "")] if w)


SECRETS: dict[str, Callable[[str], Iterator[str]]] = {
    "private_key": _all(_PRIVATE_KEY),
    "api_key": _all(_API_KEY),
    "credential": _all(_CREDENTIAL, 1),
    "card": _cards,
    "iban": ibans,
}
"""Finders by name: text → the secrets in it. Time is linear in the length of the text, which may be hostile."""


def luhn(number: str) -> bool:
    """Whether the check digit of a card number is right (ISO/IEC 7812-1)."""
    digits = [int(c) for c in number if c.isdigit()]
    doubled = [sum(divmod(2 * d, 10)) if i % 2 else d for i, d in enumerate(reversed(digits))]
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0


def checked(iban: str) -> bool:
    """Whether the check digits of an IBAN are right (ISO 13616: the number modulo 97 is 1)."""
    text = re.sub(r"[^0-9A-Za-z]", "", iban).upper()
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", text):
        return False
    return int("".join(str(int(c, 36)) for c in text[4:] + text[:4])) % 97 == 1
