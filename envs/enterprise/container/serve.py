"""Serves a saved workspace over MCP (streamable HTTP) and writes every call into a journal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, cast

import uvicorn

from envs.enterprise.container.session import opened
from envs.enterprise.mcp import server


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    session = cast(Any, opened(args.state))  # has what the server asks of a session
    args.journal.parent.mkdir(parents=True, exist_ok=True)
    args.journal.touch()
    app = server(session, args.journal).streamable_http_app(
        json_response=True, stateless_http=True, host=args.host
    )
    uvicorn.run(app, host=args.host, port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
