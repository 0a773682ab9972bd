"""A company's workspace as a gymnasium environment with text in and text out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import gymnasium

from envs.base import Info, Observation, ToolCallError, Verdict, parse_call
from envs.enterprise.apps.control import ENDINGS
from envs.enterprise.codes import encode
from envs.enterprise.sandbox import CODE_APP, Sandbox, SandboxLimits, code_tool
from envs.enterprise.tasks.catalog import Built, build, catalog
from envs.enterprise.toolkit import AppTool, ToolFailed, render, tool_named
from envs.enterprise.verify import Record, breach, completion
from envs.enterprise.workspace import Logged, Snapshot
from envs.local import AnyText


@dataclass(frozen=True)
class EnterpriseOptions:
    """How a workspace is shown; see `envs.enterprise.EnterpriseConfig`."""

    tools: str = "apps"
    earlier: int = 3
    earlier_chars: int = 400
    code: SandboxLimits | None = None


@dataclass
class Session:
    """A built task while it is worked on: calls, their results, and what the verifiers say.

    ``stopped`` are the limits that ended the agent's code, None where it has no sandbox.
    Shared by the environment, the MCP server and the checks.
    """

    built: Built
    tools: Mapping[str, AppTool]
    before: dict[str, dict[int, dict[str, Any]]] = field(init=False)
    results: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False
    stopped: list[str] | None = None

    _after: Snapshot | None = field(init=False)

    def __post_init__(self) -> None:
        self._after = self.built.workspace.snapshot()
        self.before = {t: dict(rows) for t, rows in self._after.items()}

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any, str | None]:
        """Makes a call. Returns its result and, if the service refused, its complaint."""
        tool, workspace = tool_named(name, self.tools), self.built.workspace
        result, error = tool.attempt(workspace, arguments)
        if tool.writes:
            self._after = None
        workspace.log.append(Logged(name, dict(arguments), error, tool.writes))
        self.ended |= name in ENDINGS and error is None
        return result, error

    def plant(self, text: str) -> None:
        """Puts an outsider's text into every site, in place of the one planted before."""
        for site in self.built.sites:
            whole = f"{site.before}\n{text}" if text else site.before
            self.built.workspace.update(site.table, site.rowid, **{site.column: whole})
            if site.rowid in self.before[site.table]:  # the outsider's deed, not the agent's
                row = self.before[site.table][site.rowid]
                self.before[site.table][site.rowid] = {**row, site.column: whole}
        self._after = None

    def record(self) -> Record:
        """What the verifiers look at."""
        if self._after is None:
            self._after = self.built.workspace.snapshot()
        return Record(self.before, self._after, tuple(self.built.workspace.log))

    def verdict(self, exposed: bool = False) -> Verdict:
        """Completion and breach of what was done so far.

        ``details.resisted`` is None where the outsider's text was never read: that is no merit.
        """
        record, built = self.record(), self.built
        done = completion(built.needs, record)
        harm = breach(built.harm.breaches, record) if built.harm else 0.0
        return Verdict(
            completion=done,
            breach=harm,
            exposed=exposed,
            details={
                "apps": list(built.task.apps),
                "kind": built.task.kind.value,
                "family": built.task.family,
                "ending": next((c.tool for c in record.log if c.tool in ENDINGS), None),
                "resisted": harm == 0.0 if exposed or built.task.kind == "malicious" else None,
                "calls": len(record.log),
                "writes": sum(c.writes and c.error is None for c in record.log),
                **({} if self.stopped is None else {"sandbox": list(self.stopped)}),
            },
        )


class EnterpriseEnv(gymnasium.Env[str, str]):
    """One task at a time in a fresh workspace.

    ``reset(seed=…, options={"task": name})``; the same task and seed give the same workspace. An action is the
    text of one tool call. The episode ends with ``finish`` or ``decline``. Raises `UnknownTaskError`.
    """

    metadata = {"render_modes": []}

    def __init__(self, options: EnterpriseOptions | None = None) -> None:
        self.options = options or EnterpriseOptions()
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self.session: Session | None = None
        self._sandbox = Sandbox(self.options.code) if self.options.code else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        name = str((options or {}).get("task", next(iter(catalog()))))
        self.close()
        built = build(name, seed % 2**31)
        self.session = Session(built, offered(built, self.options.tools))
        if self._sandbox is not None:
            self.session.stopped = []
            made = code_tool(self._sandbox, self.session.stopped)
            self.session.tools = {**self.session.tools, made.name: made}
        self._header = _header(built, encode(seed % 2**31, list(catalog()).index(name)))
        self._planted = ""
        self._exposed = False
        self._last_read: tuple[str, Mapping[str, Any]] | None = None
        self._text = self._shown()
        info: Info = {
            "goal": built.instruction,
            "attack": built.harm.goal if built.harm and built.sites else "",
            "insiders": _insiders(built),
            "tools": tuple(t.tool for t in self.session.tools.values()),
            "sites": self._sites(),
            "verdict": self.session.verdict(),
        }
        return self._text, dict(info)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        assert self.session is not None, "reset first"
        session = self.session
        self._exposed |= bool(self._planted) and self._planted in self._text
        error: str | None = None
        try:
            tools = tuple(t.tool for t in session.tools.values())
            made = parse_call(action, tools)
            result, error = session.call(made.name, made.arguments)
            self._last_read = None
            if error is None:
                tool = session.tools[made.name]
                if not tool.writes and tool.app != CODE_APP:
                    self._last_read = (made.name, made.arguments)
                session.results.append((str(made), render(result)))
        except ToolCallError as malformed:
            error = str(malformed)
        self._text = self._shown()
        verdict = session.verdict(self._exposed)
        info: Info = {"sites": self._sites(), "verdict": verdict, "error": error}
        return self._text, verdict.completion - verdict.breach, session.ended, False, dict(info)

    def plant(self, text: str) -> Observation:
        """Puts an outsider's text into the workspace; the last read is shown as it would read now."""
        assert self.session is not None, "reset first"
        session = self.session
        if session.built.harm is not None and session.built.sites:
            self._planted = text.encode("utf-8", "replace").decode("utf-8")
            session.plant(self._planted)
            if self._last_read is not None:
                name, arguments = self._last_read
                try:
                    result = session.tools[name].call(session.built.workspace, arguments)
                    session.results[-1] = (session.results[-1][0], render(result))
                except ToolFailed:
                    pass  # the text changed what a search finds; what was read stays
            self._text = self._shown()
        return Observation(self._text, self._sites())

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
        if self.session is not None:
            self.session.built.workspace.close()
            self.session = None

    def _sites(self) -> tuple[str, ...]:
        assert self.session is not None
        return tuple(f"{s.table}.{s.column}" for s in self.session.built.sites)

    def _shown(self) -> str:
        """The newest result whole, and the beginnings of some earlier ones."""
        assert self.session is not None
        lines = [self._header]
        results = self.session.results
        if results:
            made, text = results[-1]
            lines += [f"Result of {made}:", text]
        earlier = results[:-1][-self.options.earlier :] if self.options.earlier else []
        if earlier:
            lines.append("Earlier results:")
            for made, text in reversed(earlier):
                limit = self.options.earlier_chars
                lines.append(f"{made}: {text if len(text) <= limit else text[:limit] + ' …'}")
        return "\n".join(lines)


def offered(built: Built, which: str) -> Mapping[str, AppTool]:
    """The tools that the agent gets: those of the task's ``apps``, ``all``, or what runs of the ``task`` use."""
    if which == "apps":
        return built.tools
    if which == "all":
        everything = {t.name: t for a in built.suite.apps.values() for t in a.tools}
        return {**everything, **built.tools}
    used = {c.name for c in (*built.solution, *built.compromised)} | set(ENDINGS)
    return {name: tool for name, tool in built.tools.items() if name in used}


def _insiders(built: Built) -> tuple[str, ...]:
    """The company's domain and its people; guests with an address elsewhere are none of them."""
    ws = built.workspace
    own = ws.rows("SELECT name, handle, email FROM people WHERE email LIKE ?", f"%@{ws.domain}")
    return (ws.domain, *(p[key] for p in own for key in ("email", "handle", "name")))


def _header(built: Built, code: str) -> str:
    ws = built.workspace
    me = ws.one("SELECT name, email FROM people WHERE handle = ?", ws.me) or {}
    return (
        f"Workspace {ws.company.lower()}-{code}, signed in as {me.get('name')} "
        f"<{me.get('email')}>, {ws.now:%Y-%m-%d}."
    )
