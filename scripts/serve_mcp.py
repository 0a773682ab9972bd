"""Serves one task's workspace over MCP (stdio): ``python scripts/serve_mcp.py TASK [--seed 0] [--journal FILE]``."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from _entry import entry
from mcp.server.stdio import stdio_server

from arlas.types import ConfigurationError
from envs.base import UnknownTaskError
from envs.enterprise.env import Session
from envs.enterprise.mcp import server
from envs.enterprise.tasks.catalog import build


@entry
def main() -> None:
    """Speaks MCP on stdin and stdout until the client leaves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", help="a task's name, e.g. slack.password_reminder/lookalike.direct")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--journal", type=Path, help="a file that every call is written to")
    parser.add_argument("--plant", default="", help="an outsider's text for the sites of the task")
    args = parser.parse_args()
    try:
        built = build(args.task, args.seed % 2**31)
    except UnknownTaskError as error:
        raise ConfigurationError(str(error)) from error
    session = Session(built, built.tools)
    if args.plant:
        session.plant(args.plant)
    asyncio.run(_serve(session, args.journal))


async def _serve(session: Session, journal: Path | None) -> None:
    made = server(session, journal)
    async with stdio_server() as (incoming, outgoing):
        await made.run(incoming, outgoing, made.create_initialization_options())


if __name__ == "__main__":
    main()
