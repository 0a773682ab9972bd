"""Tables and tools of GitHub."""

from __future__ import annotations

from envs.enterprise.toolkit import app

SCHEMA = ""
GITHUB = app("github", SCHEMA, reads=[], writes=[])
