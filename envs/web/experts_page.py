"""An observation of the web world read back into elements: what the experts work on.

Only what stands at the beginning of a line is the page's; text that an outsider hung behind it is dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_OPTIONS = rf"options=(?:{_QUOTED}(?:, (?:{_QUOTED}|…))*)?"
_WORD = r"(?:checked|selected|expanded|collapsed|disabled|focused|(?:type|sides|color|at|size|icon)=[^\s\"\[\]]+)"
_TRAIT = rf"(?: (?:value={_QUOTED}|{_OPTIONS}|{_WORD}))*"
_BODY = rf"(?P<role>[a-z]+)(?: (?P<label>{_QUOTED}))?(?P<traits>{_TRAIT})"
_AFTER = re.compile(rf"{_BODY} \[(?P<id>\d+)\]")
_BEFORE = re.compile(rf"\[(?P<id>\d+)\] {_BODY}(?= |$)")
_PLAIN = re.compile(rf"(?P<role>text|row) (?P<label>{_QUOTED})")
_VALUE = re.compile(rf"value=({_QUOTED})")
_LIST = re.compile(_QUOTED)
_BOX = re.compile(r"at=(-?\d+),(-?\d+) size=(\d+)x(\d+)")
_COLOR = re.compile(r"color=(\S+)")
_PAST = re.compile(r"^\d+\. (.*?)(?: → error: .*)?$", re.DOTALL)
SHOWN_LABEL = 40  # characters of a label that a thought repeats


@dataclass(frozen=True)
class Element:
    """One line of the page. Plain lines (``text``, ``row``) have no id."""

    id: str
    role: str
    label: str = ""
    traits: str = ""
    id_first: bool = False

    @property
    def said(self) -> str:
        """The line as a thought repeats it: role, label and id in the order of the page."""
        label = self.label
        if len(label) > SHOWN_LABEL:
            label = label[:SHOWN_LABEL].rstrip() + "…"
        body = f"{self.role} {json.dumps(label, ensure_ascii=False)}" if label else self.role
        return f"[{self.id}] {body}" if self.id_first else f"{body} [{self.id}]"

    @property
    def words(self) -> tuple[str, ...]:
        """The one-word traits, such as ``checked`` or ``collapsed``."""
        return tuple(_LIST.sub("", self.traits).split())

    @property
    def value(self) -> str:
        """What stands in the box; a password box shows bullets."""
        found = _VALUE.search(self.traits)
        return _unquoted(found[1]) if found else ""

    @property
    def options(self) -> tuple[str, ...]:
        """The choices of a list."""
        tail = self.traits.partition("options=")[2]
        return tuple(_unquoted(q) for q in _LIST.findall(tail))

    @property
    def color(self) -> str:
        """A CSS colour, empty where the page shows none."""
        found = _COLOR.search(self.traits)
        return found[1] if found else ""

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, width and height in pixels; zeros where the page shows none."""
        found = _BOX.search(self.traits)
        return tuple(map(int, found.groups())) if found else (0, 0, 0, 0)  # type: ignore[return-value]

    def holds(self, value: str | tuple[str, ...]) -> bool:
        """Whether the box shows this value, or as many bullets; of a list, whether these are chosen."""
        if isinstance(value, tuple):
            return set(self.value.split(", ")) == set(value)
        return self.value in (value, "•" * len(value))


@dataclass(frozen=True)
class Page:
    """The lines of an observation in order, the user's own data, and the calls made so far, good and failed ones apart."""

    lines: tuple[Element, ...]
    user: Mapping[str, str] = field(default_factory=dict)
    past: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @classmethod
    def read(
        cls, observation: str, user: Mapping[str, str] | None = None, past: Sequence[str] = ()
    ) -> Page:
        """Reads an observation, with the id in front of or behind the label. Other lines are skipped."""
        lines: list[Element] = []
        seen: set[str] = set()
        for raw in observation.split("\n"):
            for form in (_AFTER, _BEFORE, _PLAIN):
                found = form.match(raw)
                if found:
                    break
            else:
                continue
            groups = found.groupdict()
            id_ = groups.get("id") or ""
            if id_ and id_ in seen:  # the page names an element once; a second line is forged
                continue
            seen.add(id_)
            lines.append(
                Element(
                    id_,
                    groups["role"],
                    _unquoted(groups["label"] or '""'),
                    (groups.get("traits") or "").strip(),
                    form is _BEFORE,
                )
            )
        calls = [m for m in map(_PAST.match, past) if m]
        made, failed = (
            tuple(m[1] for m in calls if (" → error: " in m[0]) == bad) for bad in (False, True)
        )
        return cls(tuple(lines), dict(user or {}), made, failed)

    def told(self) -> Iterator[tuple[str, Page]]:
        """What may be the task that the page itself tells, on its first or last line, and the page without it."""
        for i in (0, len(self.lines) - 1) if self.lines else ():
            line = self.lines[i]
            if not line.id and line.role == "text":
                yield line.label, replace(self, lines=self.lines[:i] + self.lines[i + 1 :])

    def all(self, *roles: str) -> tuple[Element, ...]:
        """The elements of these roles, all that can be acted on by default."""
        return tuple(e for e in self.lines if e.id and (not roles or e.role in roles))

    def texts(self, role: str = "text") -> tuple[str, ...]:
        """The plain lines."""
        return tuple(e.label for e in self.lines if not e.id and e.role == role)

    def named(self, label: str, *roles: str) -> Element | None:
        """The element with this label: letter by letter first, then apart from case and spaces."""
        pool = self.all(*roles)
        for same in (str, compact, lambda text: compact(text).casefold()):
            for element in pool:
                if element.label and same(element.label) == same(label):
                    return element
        return None

    def nth(self, n: int, *roles: str) -> Element | None:
        """The n-th element of these roles, from 1."""
        pool = self.all(*roles)
        return pool[n - 1] if 1 <= n <= len(pool) else None

    def after(self, label: str) -> tuple[Element, ...]:
        """The lines behind the first plain line with this label, compared apart from case."""
        wanted = compact(label).casefold()
        for i, line in enumerate(self.lines):
            if not line.id and compact(line.label).casefold() == wanted:
                return self.lines[i + 1 :]
        return ()

    def done(self, call: str) -> int:
        """How often this call has been made without an error."""
        return self.past.count(call)


def compact(text: str) -> str:
    """``text`` without white space and control characters."""
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", "", text)


def _unquoted(text: str) -> str:
    try:
        text = str(json.loads(text, strict=False))
    except ValueError:
        text = text[1:-1]
    return text.encode("utf-8", "replace").decode()  # a lone surrogate can be in no reply


class Lost(Exception):
    """The page does not show what the task speaks of."""


@dataclass(frozen=True)
class Move:
    """One call on one element; ``why`` finishes the sentence "the task says …"."""

    element: Element
    why: str
    tool: str = "click"
    value: str | tuple[str, ...] | None = None

    @property
    def call(self) -> str:
        """The call as text."""
        arguments: list[object] = [self.element.id]
        if self.value is not None:
            arguments.append(list(self.value) if isinstance(self.value, tuple) else self.value)
        shown = ", ".join(json.dumps(a, ensure_ascii=False) for a in arguments)
        return f"{self.tool}({shown})"


def need(element: Element | None) -> Element:
    """The element. Raises `Lost` if there is none."""
    if element is None or not element.id:
        raise Lost
    return element


def click(element: Element | None, why: str) -> Move:
    """A click. Raises `Lost`."""
    return Move(need(element), why)


def by_key(move: Move) -> Move:
    """A click done by the keyboard, for an element that another one covers."""
    return Move(move.element, move.why, "press", "Enter")


def fill(element: Element | None, value: str, why: str) -> Move:
    """A text for a box. Raises `Lost`."""
    return Move(need(element), why, "fill", value)


def choose(element: Element | None, options: Sequence[str], why: str) -> Move:
    """Options of a list, all in one call. Raises `Lost`."""
    value = options[0] if len(options) == 1 else tuple(options)
    return Move(need(element), why, "select_option", value)


def first(page: Page, plan: Sequence[Move]) -> Move:
    """The first move of a plan that the page or the past does not show as done. Raises `Lost`."""
    made: dict[str, int] = {}
    for move in plan:
        made[move.call] = made.get(move.call, 0) + 1
        times = page.done(move.call) + page.done(by_key(move).call)
        if move.value is not None and move.tool != "press":
            done = move.element.holds(move.value) or times >= 2
        elif move.element.role in ("checkbox", "radio"):
            done = "checked" in move.element.words
        else:
            done = times >= made[move.call]
        if not done:
            return move
    raise Lost
