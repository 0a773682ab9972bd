"""Tables and tools of calendar and drive."""

from __future__ import annotations

from envs.enterprise.toolkit import app

SCHEMA = ""
DRIVE = app("drive", SCHEMA, reads=[], writes=[])
