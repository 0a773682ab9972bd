"""Tools of the workspaces: typed Python functions, from which signatures and JSON schemas are derived."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pydantic

from envs.base import Param, Tool, ToolCallError
from envs.enterprise.workspace import Workspace

Function = Callable[..., Any]
_NAMES = {str: "str", int: "int", float: "float", bool: "bool", list: "list", dict: "dict"}


class ToolFailed(Exception):
    """A service's own complaint, worded as the real service words it. Shown to the agent."""


@dataclass(frozen=True)
class AppTool:
    """One tool of one app. ``writes`` says whether it can change the workspace; reads are pure.

    ``irreversible`` writes cannot be taken back by another tool: runtime layers ask for approval.
    """

    app: str
    function: Function
    writes: bool = False
    irreversible: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @functools.cached_property
    def tool(self) -> Tool:
        """The tool as the game knows it."""
        params = [_param(p) for p in _parameters(self.function)]
        return Tool(self.name, tuple(params), _doc(self.function), self.irreversible)

    @functools.cached_property
    def arguments(self) -> type[pydantic.BaseModel]:
        """The arguments as a strict pydantic model: unknown names and wrong types are refused."""
        fields: dict[str, Any] = {
            p.name: (p.annotation, ... if p.default is p.empty else p.default)
            for p in _parameters(self.function)
        }
        config = pydantic.ConfigDict(extra="forbid")
        return pydantic.create_model(self.name, __config__=config, **fields)

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in OpenAI's function calling format."""
        parameters = self.arguments.model_json_schema()
        parameters.pop("title", None)
        function = {"name": self.name, "description": _doc(self.function), "parameters": parameters}
        return {"type": "function", "function": function}

    def call(self, workspace: Workspace, arguments: Mapping[str, Any]) -> Any:
        """Runs the tool. Raises `ToolCallError` for wrong arguments, `ToolFailed` for a service's no."""
        try:
            checked = self.arguments.model_validate(dict(arguments))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "arguments"
            raise ToolCallError(f"{where}: {first['msg']}: {self.tool.signature}") from None
        values = {name: getattr(checked, name) for name in type(checked).model_fields}
        return self.function(workspace, **values)

    def attempt(self, workspace: Workspace, arguments: Mapping[str, Any]) -> tuple[Any, str | None]:
        """Runs the tool. Returns its result and, if the service refused, its complaint. Raises `ToolCallError`."""
        try:
            return self.call(workspace, arguments), None
        except ToolFailed as failed:
            return None, str(failed)
        except OverflowError as failed:  # a number that SQLite does not hold
            return None, f"invalid_arguments: {failed}"


@dataclass(frozen=True)
class App:
    """A service: its tables (SQL) and its tools."""

    name: str
    schema: str
    tools: tuple[AppTool, ...]


def tool_named(name: str, tools: Mapping[str, AppTool]) -> AppTool:
    """The tool of that name. Raises `ToolCallError` with the names that there are."""
    if name not in tools:
        raise ToolCallError(f"there is no tool {name}; tools: {', '.join(tools)}")
    return tools[name]


def app(name: str, schema: str, reads: Iterable[Function], writes: Iterable[Function],
        irreversible: Iterable[Function] = ()) -> App:  # fmt: skip
    """An app from its functions, each ``(workspace, arguments…) → plain data``."""
    tools = [AppTool(name, f) for f in reads]
    tools += [AppTool(name, f, writes=True) for f in writes]
    tools += [AppTool(name, f, writes=True, irreversible=True) for f in irreversible]
    return App(name, schema, tuple(tools))


def render(result: Any, indent: str = "") -> str:
    """A tool's result as text. Strings stand in it verbatim, whatever they hold."""
    if isinstance(result, Mapping):
        lines = []
        for key, value in result.items():
            nested = isinstance(value, Mapping) or (
                isinstance(value, list) and any(isinstance(v, Mapping) for v in value)
            )
            text = render(value, indent + "  ")
            lines.append(
                f"{indent}{key}:\n{text}" if nested and value else f"{indent}{key}: {text}"
            )
        return "\n".join(lines)
    if isinstance(result, list):
        if not result:
            return "(none)"
        if any(isinstance(v, Mapping) for v in result):
            return "\n".join(f"{indent}- {render(v, indent + '  ').lstrip()}" for v in result)
        return ", ".join(map(str, result))
    if result is None or result == "":
        return "-"
    return str(result)


def _parameters(function: Function) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(function)
    found = list(inspect.signature(function).parameters.values())[1:]
    return [p.replace(annotation=hints[p.name]) for p in found]


def _param(parameter: inspect.Parameter) -> Param:
    kinds = typing.get_args(parameter.annotation) or (parameter.annotation,)
    if isinstance(parameter.annotation, types.GenericAlias):
        kinds = (parameter.annotation.__origin__,)
    kind = next(k for k in kinds if k is not type(None))
    required = parameter.default is parameter.empty
    optional = type(None) in kinds
    name = "any" if optional else _NAMES[typing.get_origin(kind) or kind]
    return Param(parameter.name, name, required, None if required else parameter.default)


def _doc(function: Function) -> str:
    return " ".join((inspect.getdoc(function) or "").split())
