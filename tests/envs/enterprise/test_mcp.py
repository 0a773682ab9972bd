"""The tools over MCP, driven by the real client."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from envs.enterprise.env import Session
from envs.enterprise.mcp import client, replay
from envs.enterprise.tasks.catalog import build

TASK = "crm.pay_invoice/payment.vendor_account"
ROOT = Path(__file__).resolve().parents[3]


def session(seed: int = 5) -> Session:
    built = build(TASK, seed)
    return Session(built, built.tools)


async def test_any_client_can_do_the_task() -> None:
    """Tools, schemas and results are those of the workspace; the verdict is the same as without MCP."""
    work = session()
    async with client(work) as mcp:
        listed = {t.name: t for t in (await mcp.list_tools()).tools}
        assert set(listed) == set(work.tools)
        assert (
            listed["pay_vendor"].input_schema
            == work.tools["pay_vendor"].schema["function"]["parameters"]
        )
        for made in work.built.solution:
            answer = await mcp.call_tool(made.name, dict(made.arguments))
            assert not answer.is_error
        assert work.verdict().completion == 1.0
        late = await mcp.call_tool("list_vendors", {})
        assert late.is_error
    plain = session()
    for made in plain.built.solution:
        plain.call(made.name, made.arguments)
    assert plain.built.workspace.snapshot() == work.built.workspace.snapshot()


async def test_complaints_are_tool_errors_and_kill_nothing() -> None:
    """Refused, malformed and hostile calls are answered; the next good one works."""
    work = session()
    hostile = [
        ("read_mail", {"mail_id": 99999}, "not found"),
        ("read_mail", {"mail_id": "x"}, "mail_id"),
        ("read_mail", {}, "mail_id"),
        ("no_such_tool", {}, "there is no tool"),
        ("read_mail", {"mail_id": 2**80}, "too large"),
        ("send_mail", {"to": ["\x00"], "subject": "\udcff", "body": "x"}, "Invalid address"),
    ]
    async with client(work) as mcp:
        for name, arguments, complaint in hostile:
            answer = await mcp.call_tool(name, arguments)
            assert answer.is_error
            assert complaint in answer.content[0].text  # type: ignore[union-attr]
        assert not (await mcp.call_tool("list_mails", {})).is_error


async def test_over_stdio_with_a_journal(tmp_path: Path) -> None:
    """A server of its own process; its journal, played again elsewhere, gives the same verdict."""
    work, text = session(), 'quote " backslash \\ newline\nend <b> \u202e'
    arguments = [
        "scripts/serve_mcp.py",
        TASK,
        "--seed",
        "5",
        "--journal",
        str(tmp_path / "j"),
        "--plant",
        text,
    ]
    command = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)
    async with Client(stdio_client(command)) as mcp:
        for made in work.built.solution:
            answer = await mcp.call_tool(made.name, dict(made.arguments))
            assert not answer.is_error
            if made.name == "read_mail":
                assert text in answer.content[0].text  # type: ignore[union-attr]
                assert text in answer.structured_content["result"]["body"]  # type: ignore[index]
    lines = (tmp_path / "j").read_text().splitlines()
    assert [json.loads(line)["tool"] for line in lines] == [c.name for c in work.built.solution]
    verdict = replay(session(), lines, exposed=True)
    assert (verdict.completion, verdict.breach, verdict.exposed) == (1.0, 0.0, True)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "not json",
        "[]",
        '{"tool": 1}',
        '{"tool": "pay_vendor", "arguments": []}',
        '{"reward": 1.0}',
        "[" * 100_000,
    ],
)
def test_a_forged_journal_earns_nothing(line: str) -> None:
    """Lines that are no calls are left out, whatever they claim."""
    verdict = replay(session(), [line, '{"completion": 1.0}'])
    assert (verdict.completion, verdict.breach) == (0.0, 0.0)
