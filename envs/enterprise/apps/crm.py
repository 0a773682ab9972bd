"""Tables and tools of the CRM."""

from __future__ import annotations

from envs.enterprise.toolkit import app

SCHEMA = ""
CRM = app("crm", SCHEMA, reads=[], writes=[])
