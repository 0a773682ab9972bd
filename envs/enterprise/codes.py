"""Names of workspaces. A name tells a scripted teacher which episode this is; to anybody else it is noise."""

from __future__ import annotations

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_MODULUS = 2**56
_FACTOR = 0x9E3779B97F4A7D  # odd, so that it can be undone; scatters neighbouring seeds and tasks
_TASKS = 4096


def encode(seed: int, task: int) -> str:
    """A short code of a seed below 2³¹ and the number of a task below 4096."""
    value = (seed % 2**31 * _TASKS + task) * _FACTOR % _MODULUS
    text = ""
    while value:
        value, digit = divmod(value, 36)
        text = _DIGITS[digit] + text
    return text or "0"


def decode(code: str) -> tuple[int, int]:
    """The seed and the task's number. Raises ValueError for what is no code."""
    value = int(code, 36) * pow(_FACTOR, -1, _MODULUS) % _MODULUS
    seed, task = divmod(value, _TASKS)
    if seed >= 2**31:
        raise ValueError(f"{code} is no code of a workspace")
    return seed, task
