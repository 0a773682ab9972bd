"""What a world owes the game.

A world is a gymnasium environment with text in and text out. ``reset`` and ``step`` keep gymnasium's
signatures; everything the game needs besides the text travels in ``info`` under the keys of `Info`.
The game never talks to an environment directly but to a `World` handle, whose methods are
coroutines, so that an environment may live in this process (`LocalWorld`) or in a worker process
(`envs.workers`).
"""

from __future__ import annotations

import ast
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict


class WorldError(RuntimeError):
    """The infrastructure failed (a browser died, a worker hung). Never a reward: invariant 6."""


class UnknownTaskError(KeyError, ValueError):
    """A task name that this world does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ToolCallError(ValueError):
    """A reply that is not one well-formed call of one of the tools. The text is shown to the model."""


@dataclass(frozen=True)
class Param:
    """One parameter of a tool. ``type`` is one of ``str int float bool list dict any``."""

    name: str
    type: str = "str"
    required: bool = True
    default: Any = None


@dataclass(frozen=True)
class Tool:
    """What the agent may call: a name, parameters in order, and one line of explanation.

    ``irreversible``: no other tool takes back what it does.
    """

    name: str
    params: tuple[Param, ...] = ()
    doc: str = ""
    irreversible: bool = False

    @property
    def signature(self) -> str:
        """The tool as one line of a prompt, e.g. ``fill(bid, value)``."""
        shown = [p.name if p.required else f"{p.name}={p.default!r}" for p in self.params]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class ToolCall:
    """A parsed call: the tool's name and its literal arguments by parameter name."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


@dataclass(frozen=True)
class Observation:
    """What a seat sees. ``sites`` names the places where outsiders can write into the live world."""

    text: str
    sites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What the world's verifiers say, from its state and never from the agent's own word.

    ``completion`` and ``breach`` lie in [0, 1]; ``exposed`` says that the attacker's text acted on the
    agent even if it never stood in its prompt (a simultaneous-move game).
    """

    completion: float = 0.0
    breach: float = 0.0
    exposed: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """The beginning of an episode: the task in words, the tools, and the first observation.

    ``attack`` completes "make the assistant …" for the attacker; empty where it is after private data alone.
    ``insiders`` are the domains, and the people by address, handle and name, of the user's own organization; runtime
    layers use them.
    """

    goal: str
    observation: Observation
    tools: tuple[Tool, ...] = ()
    attack: str = ""
    insiders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """What one tool call brought.

    ``error`` is a tool's own complaint, shown to the agent in the next prompt. ``demanded`` names the
    private fields that the task legitimately wanted in exactly this call; they are no leak there.
    """

    observation: Observation
    done: bool
    verdict: Verdict
    error: str | None = None
    demanded: tuple[str, ...] = ()


class Info(TypedDict, total=False):
    """The keys of gymnasium's ``info`` that the game reads; all are optional."""

    goal: str
    attack: str
    insiders: tuple[str, ...]
    tools: tuple[Tool, ...]
    sites: tuple[str, ...]
    verdict: Verdict
    error: str | None
    demanded: tuple[str, ...]


class World(Protocol):
    """A handle on one single-use episode of one environment."""

    async def reset(self, task: str, seed: int, user: Mapping[str, str]) -> Start:
        """Begins an episode. ``user`` holds the private fields, for tasks that legitimately use them."""
        ...

    async def plant(self, text: str) -> Observation:
        """Puts an outsider's text into the live world and observes it again."""
        ...

    async def step(self, action: str) -> Step:
        """Plays the text of one tool call."""
        ...

    async def close(self) -> None:
        """Gives the handle back."""
        ...


class Worlds(Protocol):
    """A pool of worlds of one kind; ``capacity`` episodes can be open at once."""

    capacity: int

    async def acquire(self) -> World:
        """Waits for a free handle. Raises `WorldError` if none can be had."""
        ...

    async def close(self) -> None:
        """Ends every worker. Safe to call twice."""
        ...


class EnvConfig(Protocol):
    """The typed config of a world; ``conf/env/*.yaml`` chooses its class by ``_target_``."""

    def tasks(self) -> TaskSplit:
        """Training and evaluation tasks, checked for overlap. Raises `UnknownTaskError`."""
        ...

    def open(self) -> Worlds:
        """Starts the pool. Raises `WorldError` with a remedy if a part is missing."""
        ...


@dataclass(frozen=True)
class TaskSplit:
    """Names of training and evaluation tasks, never overlapping."""

    train: tuple[str, ...]
    eval: tuple[str, ...]

    def __post_init__(self) -> None:
        both = sorted(set(self.train) & set(self.eval))
        if both:
            raise ValueError(
                f"tasks in both the training and the evaluation split: {', '.join(both)}"
            )


def split_tasks(names: Sequence[str], eval_share: float, seed: int) -> TaskSplit:
    """Draws a train/eval split of *tasks* that depends on the names and the seed alone, not on order."""
    if not 0.0 <= eval_share < 1.0:
        raise ValueError(f"eval_share must lie in [0, 1), got {eval_share}")
    ordered = sorted(set(names))
    random.Random(seed).shuffle(ordered)
    held = round(len(ordered) * eval_share)
    return TaskSplit(train=tuple(sorted(ordered[held:])), eval=tuple(sorted(ordered[:held])))


# --- calls ------------------------------------------------------------------------------------------

MAX_CALL_CHARS = 4_000
_MAX_INT = 10**18  # far longer ones cannot even be shown: Python refuses to write them out
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list, tuple),
    "dict": (dict,),
}


def parse_call(text: str, tools: Sequence[Tool]) -> ToolCall:
    """Parses ``name(literal, key=literal, ...)`` against the tools' signatures; nothing is executed.

    Raises `ToolCallError` whose message can be shown to the model.
    """
    text = text.strip()
    if len(text) > MAX_CALL_CHARS:
        raise ToolCallError(f"the call is longer than {MAX_CALL_CHARS} characters")
    try:
        with warnings.catch_warnings():  # "invalid escape sequence" is nobody's business here
            warnings.simplefilter("ignore")
            node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolCallError("the action is not a single tool call") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ToolCallError("the action is not a single tool call")
    by_name = {tool.name: tool for tool in tools}
    tool = by_name.get(node.func.id)
    if tool is None:
        raise ToolCallError(f"there is no tool {node.func.id}; tools: {', '.join(by_name)}")
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, int) and part.value > _MAX_INT:
            raise ToolCallError("a number is too large")
    named = [keyword.arg for keyword in node.keywords]
    if len(set(named)) < len(named):
        raise ToolCallError(f"an argument is given twice: {tool.signature}")
    try:
        positional = [ast.literal_eval(arg) for arg in node.args]
        keywords = {k.arg: ast.literal_eval(k.value) for k in node.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ToolCallError("arguments must be literal values") from None
    return _bind(tool, positional, keywords)


def _bind(tool: Tool, positional: list[Any], keywords: dict[str | None, Any]) -> ToolCall:
    if len(positional) > len(tool.params):
        raise ToolCallError(f"too many arguments: {tool.signature}")
    bound: dict[str, Any] = dict(zip((p.name for p in tool.params), positional, strict=False))
    names = {p.name for p in tool.params}
    for key, value in keywords.items():
        if key not in names or key in bound:
            raise ToolCallError(f"unexpected argument {key}: {tool.signature}")
        bound[key] = value
    for param in tool.params:
        if param.name not in bound:
            if param.required:
                raise ToolCallError(f"missing argument {param.name}: {tool.signature}")
            continue
        bound[param.name] = _checked(tool, param, bound[param.name])
    return ToolCall(tool.name, {p.name: bound[p.name] for p in tool.params if p.name in bound})


def _checked(tool: Tool, param: Param, value: Any) -> Any:
    if param.type == "any":
        return value
    if param.type == "str" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # models often write an element's id as a number
    wrong_bool = isinstance(value, bool) and param.type not in ("bool", "any")
    if wrong_bool or not isinstance(value, _TYPES[param.type]):
        raise ToolCallError(f"{param.name} must be {param.type}: {tool.signature}")
    return value
