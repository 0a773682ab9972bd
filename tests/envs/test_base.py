"""What a world owes the game: calls parsed and never executed, splits, any gymnasium env as a world."""

from __future__ import annotations

import ast
import contextlib
import os
import time
import warnings
from typing import Any

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.base import (
    MAX_CALL_CHARS,
    Param,
    TaskSplit,
    Tool,
    ToolCall,
    ToolCallError,
    UnknownTaskError,
    WorldError,
    parse_call,
    split_tasks,
)
from envs.local import LocalWorlds

TOOLS = (
    Tool("fill", (Param("bid"), Param("value"), Param("clear", "bool", False, True))),
    Tool("put", (Param("x", "any", False),)),
    Tool("wait", (Param("ms", "float"),)),
    Tool("pick", (Param("items", "list"), Param("how", "dict", False))),
    Tool("noop"),
)


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('fill("22", "text")', "fill", {"bid": "22", "value": "text"}),
        ("fill(22, 'text', False)", "fill", {"bid": "22", "value": "text", "clear": False}),
        ('fill(value="b", bid="a")', "fill", {"bid": "a", "value": "b"}),
        ('  fill(\n "1",\n "a\\nb" )  ', "fill", {"bid": "1", "value": "a\nb"}),
        ('fill("1", "it\'s \\"so\\"")', "fill", {"bid": "1", "value": 'it\'s "so"'}),
        ("wait(3)", "wait", {"ms": 3}),
        ("wait(-0.5)", "wait", {"ms": -0.5}),
        ("pick(['a'], {'k': 1})", "pick", {"items": ["a"], "how": {"k": 1}}),
        ("noop()", "noop", {}),
        ("put({'a': [1, (2, None)]})", "put", {"x": {"a": [1, (2, None)]}}),
        ("put('\\d')", "put", {"x": "\\d"}),
    ],
)
def test_calls_are_parsed(text: str, name: str, arguments: dict[str, Any]) -> None:
    """One call with literal arguments, by position or by name, in the order of the signature."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_call(text, TOOLS) == ToolCall(name, arguments)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a single tool call"),
        ("fill", "not a single tool call"),
        ("fill('1', '2'); noop()", "not a single tool call"),
        ("fill('1', '2')\nnoop()", "not a single tool call"),
        ("x = noop()", "not a single tool call"),
        ("noop", "not a single tool call"),
        ("a.noop()", "not a single tool call"),
        ("noop()()", "not a single tool call"),
        ("put('\0')", "not a single tool call"),
        ("put('\ud800')", "not a single tool call"),
        ("click('1')", "there is no tool click; tools: fill, put, wait, pick, noop"),
        ("__import__('os')", "there is no tool"),
        ("eval('1')", "there is no tool"),
        ("fill('1')", "missing argument value: fill(bid, value, clear=True)"),
        ("fill('1', '2', True, 4)", "too many arguments"),
        ("fill('1', bid='1', value='2')", "unexpected argument bid"),
        ("fill('1', '2', colour='red')", "unexpected argument colour"),
        ("put(x=1, x=2)", "given twice"),
        ("fill(*['1', '2'])", "literal"),
        ("put(**{'x': 1})", "unexpected argument None"),
        ("put(open('/etc/passwd'))", "literal"),
        ("put(noop())", "literal"),
        ("put([x for x in (1,)])", "literal"),
        ("put(f'{1}')", "literal"),
        ("put(2 ** 100)", "literal"),
        ("put('a' * 10)", "literal"),
        ("put({[]: 1})", "literal"),
        ("put(lambda: 0)", "literal"),
        ("put((y := 1))", "literal"),
        ("put(0x" + "f" * 3900 + ")", "too large"),
        ("fill(0x" + "f" * 3900 + ", 'x')", "too large"),
        ("fill(True, 'x')", "bid must be str"),
        ("fill(1.5, 'x')", "bid must be str"),
        ("wait('3')", "ms must be float"),
        ("wait(True)", "ms must be float"),
        ("pick('abc')", "items must be list"),
        ("noop(1)", "too many arguments"),
        ("put('" + "a" * MAX_CALL_CHARS + "')", "longer than"),
    ],
)
def test_everything_else_is_refused_with_a_reason(text: str, told: str) -> None:
    """The message can be shown to the model."""
    with pytest.raises(ToolCallError) as caught:
        parse_call(text, TOOLS)
    assert told in str(caught.value)


NESTED = {
    "parentheses": ("put(" + "(" * 3900, "put(" + "(" * 150 + "1" + ")" * 151),
    "brackets": ("[" * 3900, "put(" + "[" * 190 + "]" * 190 + ")"),
    "braces": ("put(" + "{1:" * 1300, "put(" + "{1:" * 95 + "1" + "}" * 95 + ")"),
    "signs": ("put(" + "-" * 3900 + "1)", "put(" + "~" * 3000 + "1)"),
    "words": ("put(" + "not " * 950 + "1)", "put(" + "await " * 600 + "1)"),
    "lambdas": ("put(" + "lambda:" * 500 + "1)", "put(" + "lambda x=(" * 300),
    "calls": ("fill(" * 700, "put(" * 900 + ")" * 90),
    "sums": ("put(" + "1+" * 1900 + "1)", "put(" + "2**" * 1200 + "2)"),
    "attributes": ("put" + ".a" * 1900 + "()", "put(x" + "[0]" * 1300 + ")"),
    "choices": ("put(" + "1 if 1 else " * 300 + "1)", "put(" + "a<" * 1900 + "a)"),
    "strings": ("put(" + "'a' " * 990 + ")", "put(" + "f'{" * 1000),
    "loops": ("put(" + "[x for x in " * 300, "put(" + "(yield " * 500),
    "mixed": ("put(" + "[{1:(" * 700, "put(" + "{*(" * 900),
    "slices": ("put(" + "a[:" * 1200, "put(" + "a[b:" * 190 + "x y"),
    "numbers": ("put(" + "9" * 3900 + ")", "put(" + "1_" * 1900 + "1)"),
}


@pytest.mark.parametrize("kind", NESTED)
def test_invariant_13_nested_input_is_answered_in_time(kind: str) -> None:
    """Deep nesting is a literal or a `ToolCallError`, in under half a second of CPU time: no crash, no hang."""
    for text in NESTED[kind]:
        started = time.process_time()
        with contextlib.suppress(ToolCallError):
            assert parse_call(text, TOOLS).name in {t.name for t in TOOLS}
        assert time.process_time() - started < 0.5


_pieces = st.sampled_from(
    """fill put wait noop __import__ os.system open eval exec ( ) [ ] { } , : = . * ** + - ~ ' " '' "" \\ \n \t # ; @ 0x 1 22
    1e999 1j 0b1 None True ... lambda await yield if else for in not and f' b' rb" r' u" """.split(
        " "
    )
)


def _literal(value: Any) -> bool:
    if isinstance(value, (list, tuple, set)):
        return all(map(_literal, value))
    if isinstance(value, dict):
        return all(_literal(k) and _literal(v) for k, v in value.items())
    return value is None or value is ... or isinstance(value, (str, bytes, int, float, complex))


@given(st.one_of(st.text(max_size=80), st.lists(_pieces, max_size=25).map("".join)))
@settings(max_examples=600, deadline=1000)
def test_invariant_13_any_text_is_literals_or_an_error(text: str) -> None:
    """Whatever is written, out come literal values of a known tool, or a `ToolCallError`; never anything else."""
    for attempt in (text, f"put({text})", f"fill({text})"):
        try:
            call = parse_call(attempt, TOOLS)
        except ToolCallError:
            continue
        assert call.name in {t.name for t in TOOLS}
        assert _literal(dict(call.arguments))
        assert str(call)


def test_invariant_13_nothing_is_executed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No audit event of execution, import or file access while hostile calls are parsed."""
    import sys

    seen: list[str] = []
    active = True

    def watch(event: str, _: Any) -> None:
        if active and event in ("exec", "import", "open", "os.system", "subprocess.Popen"):
            seen.append(event)

    sys.addaudithook(watch)
    mark = tmp_path / "mark"
    bad = f"__import__('os').system('touch {mark}')"
    attempts = [bad, f"put({bad})", f"put([{bad}])", f"fill('1', {bad})", f"put(f'{{{bad}}}')"]
    attempts += [f"put((lambda: {bad})())", f"put(x={bad})", f"@{bad}\ndef f(): pass"]
    try:
        for text in attempts:
            with pytest.raises(ToolCallError):
                parse_call(text, TOOLS)
    finally:
        active = False
    assert seen == []
    assert not os.path.exists(mark)


@given(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(-(10**17), 10**17), st.text(max_size=30)), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3), max_leaves=8))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_literals_arrive_as_they_were_written(value: Any) -> None:
    """repr → parse gives the same value: quotes, backslashes, control characters and all."""
    assert parse_call(f"put({value!r})", TOOLS).arguments["x"] == value
    assert ast.literal_eval(repr(value)) == value


# --- splits ---------------------------------------------------------------------------------------------


def test_splits_never_overlap() -> None:
    """A task in both splits is refused by name."""
    with pytest.raises(ValueError, match="b, c"):
        TaskSplit(("a", "b", "c"), ("c", "b"))


@given(
    st.sets(st.text(max_size=4), max_size=40), st.floats(0, 0.99), st.integers(0, 9), st.randoms()
)
def test_split_depends_on_names_and_seed_alone(
    names: set[str], share: float, seed: int, rng: Any
) -> None:
    """Every task is in exactly one split, the share is met to rounding, order and repeats do not matter."""
    shuffled = [*names, *names]
    rng.shuffle(shuffled)
    split = split_tasks(sorted(names), share, seed)
    assert split_tasks(shuffled, share, seed) == split
    assert set(split.train) | set(split.eval) == names
    assert len(split.train) + len(split.eval) == len(names)
    assert len(split.eval) == round(len(names) * share)


def test_split_share_is_checked() -> None:
    """Nothing to train on is refused."""
    for share in (-0.1, 1.0):
        with pytest.raises(ValueError, match="eval_share"):
            split_tasks(["a"], share, 0)


# --- gymnasium environments as worlds -----------------------------------------------------------------


class Plain(gymnasium.Env[str, str]):
    """An environment that knows nothing of the game."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.closed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        if (options or {}).get("task") == "unknown":
            raise UnknownTaskError("no task unknown")
        return f"say {seed}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "crash":
            raise ZeroDivisionError("division by zero")
        return "said", float(action == "win"), action in ("win", "lose"), action == "slow", {}

    def close(self) -> None:
        self.closed = True


async def test_plain_environment_is_a_world() -> None:
    """No keys in info: no goal, no tools; a terminal reward above zero is completion, truncation ends."""
    worlds = LocalWorlds(Plain)
    world = await worlds.acquire()
    start = await world.reset("t", 5, {})
    assert (start.goal, start.tools, start.observation.text) == ("", (), "say 5")
    for action, done, completion in (
        ("go", False, 0.0),
        ("win", True, 1.0),
        ("lose", True, 0.0),
        ("slow", True, 0.0),
    ):
        step = await world.step(action)
        assert (step.done, step.verdict.completion, step.error) == (done, completion, None)
    with pytest.raises(WorldError, match=r"plant.*game\.injection\.placement=random_line or end"):
        await world.plant("x")
    await world.close()
    await worlds.close()


async def test_invariant_06_faults_of_an_environment_are_world_errors() -> None:
    """An exception of the environment is a `WorldError` that says which, and the environment is not reused."""
    worlds = LocalWorlds(Plain, capacity=1)
    before = Plain.made
    world: Any = await worlds.acquire()
    await world.reset("t", 1, {})
    with pytest.raises(WorldError, match="Plain: ZeroDivisionError: division by zero"):
        await world.step("crash")
    broken = world.env
    await world.close()
    assert broken.closed
    other: Any = await worlds.acquire()
    assert other.env is not broken
    assert Plain.made == before + 2
    await other.reset("t", 1, {})
    await other.close()
    again: Any = await worlds.acquire()
    assert again.env is other.env
    with pytest.raises(UnknownTaskError):
        await again.reset("unknown", 1, {})
    await again.close()
    await again.close()
    await worlds.close()
    assert again.env.closed
