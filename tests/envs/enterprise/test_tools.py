"""Every tool of every app: schemas, what it refuses, and that nothing a model passes breaks it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.base import ToolCallError
from envs.enterprise.env import Session
from envs.enterprise.tasks.catalog import SUITES, build, catalog
from envs.enterprise.tasks.spec import Kind
from envs.enterprise.toolkit import AppTool, render

TOOLS = {
    t.name: (suite.name, t)
    for suite in SUITES.values()
    for a in suite.apps.values()
    for t in a.tools
}
FIRST = {
    s: next(n for n, (suite, t) in catalog().items() if suite.name == s and t.kind is Kind.BENIGN)
    for s in SUITES
}
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "general",
            "@",
            "",
            " ",
            "a@b.co",
            "2026-03-09",
            "\x00",
            "\ud800",
            "'; DROP TABLE people; --",
            "x" * 50_000,
        ]
    ),
)
VALUES = st.one_of(
    TEXTS,
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.none(),
    st.floats(),
    st.lists(TEXTS, max_size=3),
    st.dictionaries(TEXTS, TEXTS, max_size=2),
)


def session(suite: str) -> Session:
    """A workspace in which every tool of the suite is offered."""
    built = build(FIRST[suite], 3)
    return Session(built, {t.name: t for a in SUITES[suite].apps.values() for t in a.tools})


@pytest.mark.parametrize("name", TOOLS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_argument_breaks_a_tool(name: str, data: st.DataObject) -> None:
    """Whatever the arguments, a tool answers, complains or refuses; the result can be shown and saved."""
    suite, tool = TOOLS[name]
    work = session(suite)
    try:
        for _ in range(2):
            arguments = {
                p.name: data.draw(VALUES)
                for p in tool.tool.params
                if p.required or data.draw(st.booleans())
            }
            try:
                result, error = work.call(name, arguments)
            except ToolCallError:
                continue
            assert error is None or error
            render(result)
            json.dumps(result)
        work.verdict()
    finally:
        work.built.workspace.close()


def fitting(kind: str) -> Any:
    """A value of a parameter's type that names nothing."""
    return {
        "str": "nothing@nowhere.example",
        "int": 987654,
        "bool": True,
        "list": ["nobody@nowhere.example"],
    }.get(kind, "nothing")


@pytest.mark.parametrize("name", TOOLS)
def test_reads_are_pure_and_a_refused_write_changes_nothing(name: str) -> None:
    """A read leaves every table as it was, and so does a write that the service refuses."""
    suite, tool = TOOLS[name]
    work = session(suite)
    before = work.built.workspace.snapshot()
    arguments = {p.name: fitting(p.type) for p in tool.tool.params if p.required}
    _, error = work.call(name, arguments)
    if error is not None or not tool.writes:
        assert work.built.workspace.snapshot() == before
    work.built.workspace.close()


@pytest.mark.parametrize("name", TOOLS)
def test_schemas_are_openai_functions(name: str) -> None:
    """Each schema is valid JSON schema with every parameter and a description; unknown arguments are refused."""
    tool: AppTool = TOOLS[name][1]
    function = tool.schema["function"]
    jsonschema.Draft202012Validator.check_schema(function["parameters"])
    assert function["name"] == name
    assert 10 < len(function["description"]) < 120
    assert set(function["parameters"].get("properties", {})) == {p.name for p in tool.tool.params}
    assert set(function["parameters"].get("required", [])) == {
        p.name for p in tool.tool.params if p.required
    }
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"no_such_argument": 1}, function["parameters"])


def test_there_are_enough_tools() -> None:
    """Five apps and more than forty tools in the office, and no tool is called twice."""
    office = SUITES["office"]
    names = [t.name for s in SUITES.values() for a in s.apps.values() for t in a.tools]
    assert len(office.apps) == 5
    assert sum(len(a.tools) for a in office.apps.values()) >= 40
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("read_channel", {"channel": "x"}, "channel_not_found"),
        ("send_direct_message", {"handle": "nobody", "text": "x"}, "user_not_found"),
        ("read_mail", {"mail_id": 99999}, "Requested entity was not found"),
        ("send_mail", {"to": ["not an address"], "subject": "", "body": ""}, "Invalid address"),
        ("read_issue", {"number": 99999}, "404 Not Found"),
        ("add_collaborator", {"repo": "x", "login": "y"}, "404 Not Found"),
        ("get_customer", {"customer_id": 99999}, "NOT_FOUND"),
        (
            "pay_vendor",
            {"vendor_id": 1, "amount": -5, "account": "DE00", "reference": ""},
            "OUTSIDE_VALID_RANGE",
        ),
        ("update_vendor_account", {"vendor_id": 1, "account": "not an iban"}, "IBAN"),
        ("list_events", {"day": "tomorrow"}, "badRequest"),
        ("share_document", {"document_id": 1, "email": "x@y.z", "role": "owner"}, "badRequest"),
    ],
)
def test_services_complain_in_their_own_words(
    tool: str, arguments: dict[str, Any], complaint: str
) -> None:
    """Errors are worded as the real services word them."""
    work = session("office")
    _, error = work.call(tool, arguments)
    assert error is not None
    assert complaint in error
    work.built.workspace.close()
