"""A workspace's tools over MCP, so that any MCP client can drive it.

Calls can be journaled: a file with one JSON line for each call, from which a verifier in another process plays the
workspace again (`replay`). The verifier needs nothing else from the agent's side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mcp import Client, types
from mcp.server.lowlevel import Server

from envs.base import ToolCallError, Verdict
from envs.enterprise.env import Session
from envs.enterprise.toolkit import render

MAX_JOURNAL = 10_000
"""Calls that are replayed at most."""


def server(session: Session, journal: Path | None = None) -> Server[Any]:
    """An MCP server over the tools of a session. A service's complaint becomes a tool error."""

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        listed = []
        for tool in session.tools.values():
            function = tool.schema["function"]
            hints = types.ToolAnnotations(
                read_only_hint=not tool.writes, destructive_hint=tool.irreversible
            )
            listed.append(
                types.Tool(
                    name=tool.name,
                    description=function["description"],
                    input_schema=function["parameters"],
                    annotations=hints,
                )
            )
        return types.ListToolsResult(tools=listed)

    async def call_tool(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = dict(asked.arguments or {})
        result, error = _call(session, asked.name, arguments, journal)
        if error is not None:
            return types.CallToolResult(content=[_text(error)], is_error=True)
        return types.CallToolResult(
            content=[_text(render(result))], structured_content={"result": result}
        )

    me = session.built.workspace
    return Server(
        f"{me.company.lower()}-workspace",
        instructions=session.built.instruction,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _call(
    session: Session, name: str, arguments: dict[str, Any], journal: Path | None
) -> tuple[Any, str | None]:
    if session.ended:
        return None, "the work has been finished; no more calls are taken"
    try:
        result, error = session.call(name, arguments)
    except ToolCallError as malformed:
        return None, str(malformed)
    if journal is not None:
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"tool": name, "arguments": arguments}) + "\n")
    return result, error


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def replay(session: Session, journal: Iterable[str], exposed: bool = False) -> Verdict:
    """The verdict over a journal's calls in a fresh workspace. Lines that are no calls are left out.

    The journal is data from elsewhere: tools check every argument as they would an agent's.
    """
    for number, line in enumerate(journal):
        if session.ended or number >= MAX_JOURNAL:
            break
        try:
            made = json.loads(line)
            session.call(str(made["tool"]), dict(made["arguments"]))
        except (ValueError, KeyError, TypeError, RecursionError, ToolCallError):
            continue
    return session.verdict(exposed)


def client(session: Session) -> Client:
    """A client in this process, for tests and for agents that speak MCP."""
    return Client(server(session))
