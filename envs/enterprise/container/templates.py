"""Files of an exported task that are no Python."""

from __future__ import annotations

PACKAGES = ("mcp>=2,<3", "pydantic>=2.10,<3", "gymnasium>=1.0,<2", "uvicorn>=0.30,<1")
IMAGE = "python:3.11-slim"
AGENT = f"FROM {IMAGE}\nWORKDIR /app\n"
_INSTALL = f"RUN pip install --no-cache-dir {' '.join(repr(p) for p in PACKAGES)}\n"
COMPOSE = """services:
  main:
    depends_on:
      workspace:
        condition: service_healthy
  workspace:
    build:
      context: ${CONTEXT_DIR}/workspace
    healthcheck:
      test: ["CMD", "python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8000), 2)"]
      interval: 1s
      timeout: 5s
      retries: 60
"""
SERVER = f"""FROM {IMAGE}
{_INSTALL}COPY . /workspace
WORKDIR /workspace/src
CMD ["python3", "-B", "-m", "envs.enterprise.container.serve", "/workspace/state.json", "/journal/calls.jsonl"]
"""
VERIFIER = f"FROM {IMAGE}\n{_INSTALL}COPY . /tests\n"
TEST = """#!/usr/bin/env bash
# Builds the workspace again from task and seed, plays the journal, and writes the reward.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$here/src"
exec "${PYTHON:-python3}" -B -E -s -m envs.enterprise.container.grade "$here/task.json" \\
    "${JOURNAL:-/journal/calls.jsonl}" "${LOGS_DIR:-/logs}/verifier/reward.json"
"""
SOLVE = """#!/usr/bin/env bash
# Makes the calls of the reference solution over the workspace's MCP server.
set -euo pipefail
exec "${PYTHON:-python3}" -I "$(dirname "${BASH_SOURCE[0]}")/solve.py"
"""
