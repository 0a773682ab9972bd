"""Makes the calls of ``calls.jsonl`` over MCP, with Python's standard library alone."""

from __future__ import annotations

import itertools
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

URL = os.environ.get("WORKSPACE_URL", "http://workspace:8000/mcp")
VERSION = "2025-06-18"
_numbers = itertools.count(1)


def ask(method: str, **params: Any) -> dict[str, Any]:
    """One request to the MCP server, and its result."""
    body = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
    }
    request = urllib.request.Request(URL, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        told = json.load(answer)
    if "error" in told:
        raise RuntimeError(told["error"].get("message", "the server refused"))
    result: dict[str, Any] = told["result"]
    return result


def main(calls: Path) -> None:
    """Makes every call; ends with exit code 1 if one was refused."""
    ask(
        "initialize",
        protocolVersion=VERSION,
        capabilities={},
        clientInfo={"name": "solution", "version": "1"},
    )
    refused = 0
    for line in calls.read_text(encoding="utf-8").splitlines():
        made = json.loads(line)
        result = ask("tools/call", name=made["tool"], arguments=made["arguments"])
        print(made["tool"], *(c.get("text", "") for c in result["content"]), sep="\n")
        refused += bool(result.get("isError"))
    sys.exit(1 if refused else 0)


if __name__ == "__main__":
    main(Path(__file__).with_name("calls.jsonl"))
