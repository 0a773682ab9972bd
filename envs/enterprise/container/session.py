"""A workspace read from a file, without the task behind it: nobody in its container can look up what is wanted."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from envs.base import ToolCallError
from envs.enterprise.apps.control import ENDINGS
from envs.enterprise.toolkit import App, AppTool, tool_named
from envs.enterprise.workspace import Workspace

MAX_CALL = 100_000
"""Characters of JSON in one call. Longer ones are refused before they act, so that no deed escapes the journal."""
MAX_CHARS = 20_000_000
"""Characters of JSON in all calls together."""
MAX_CALLS = 10_000
"""Calls that are taken at most: as many as `envs.enterprise.mcp.replay` plays again."""


@dataclass(frozen=True)
class Opened:
    """What the MCP server shows of a task."""

    workspace: Workspace
    instruction: str


@dataclass
class Session:
    """Stands in for `envs.enterprise.env.Session` where needs and breaches must not be known."""

    built: Opened
    tools: Mapping[str, AppTool]
    ended: bool = False
    taken: int = field(default=0, init=False)
    chars: int = field(default=0, init=False)

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any, str | None]:
        """Makes a call, as the real session does."""
        tool = tool_named(name, self.tools)
        chars = len(json.dumps(dict(arguments)))
        if chars > MAX_CALL:
            raise ToolCallError(f"the call is longer than {MAX_CALL} characters")
        if self.taken >= MAX_CALLS or self.chars + chars > MAX_CHARS:
            raise ToolCallError("no more calls are taken")
        result, error = tool.attempt(self.built.workspace, arguments)
        self.taken, self.chars = self.taken + 1, self.chars + chars
        self.ended |= name in ENDINGS and error is None
        return result, error


def saved(workspace: Workspace, instruction: str, tools: Mapping[str, AppTool]) -> str:
    """A workspace as JSON: its rows, and the names of its tools."""
    state = {
        "instruction": instruction,
        "workspace": {
            "schemas": workspace.schemas,
            "me": workspace.me,
            "company": workspace.company,
            "domain": workspace.domain,
        },
        "now": workspace.now.isoformat(),
        "tables": {
            t: [{"rowid": i, **r} for i, r in rows.items()]
            for t, rows in workspace.snapshot().items()
        },
        "modules": sorted({t.function.__module__ for t in tools.values()}),
        "tools": list(tools),
    }
    return json.dumps(state, indent=1) + "\n"


def opened(path: Path) -> Session:
    """The session of a file that `saved` wrote."""
    state = json.loads(path.read_text(encoding="utf-8"))
    about = {**state["workspace"], "schemas": tuple(state["workspace"]["schemas"])}
    workspace = Workspace(**about, now=datetime.fromisoformat(state["now"]))
    for table, rows in state["tables"].items():
        for row in rows:
            workspace.insert(table, **row)
    known: dict[str, AppTool] = {}
    for module in state["modules"]:
        for value in vars(importlib.import_module(module)).values():
            found = value if isinstance(value, tuple) else (value,)
            known |= {t.name: t for a in found if isinstance(a, App) for t in a.tools}
    tools = {name: known[name] for name in state["tools"]}
    return Session(Opened(workspace, state["instruction"]), tools)
