"""Seeds for everything, derived from the one in the config."""

from __future__ import annotations

import hashlib


def derive(*parts: int | str) -> int:
    """A 63-bit seed from a run's seed and the place where it is used; stable across processes."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
