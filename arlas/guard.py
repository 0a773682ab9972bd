"""Runtime layers between the agent's call and the world, each on or off (`arlas.rules.GuardConfig`).

*permissions*: a policy over tools, arguments and values. *filter*: no private field of the user and nothing that looks
like a secret leaves in an argument, however simply it is encoded. *approval*: a simulated person is asked about every
call of an irreversible tool, and says yes only to what the user's own words cover.

The layers know the task's words, the user, the own organization's names and the call; they see neither the world nor
what the agent read, nor does a model decide here. So they also stop honest work that goes beyond the task's words:
evaluations show both. A stopped call never reaches the world.
"""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from arlas.choices import Piece
from arlas.leak import LeakTest, normalize, views
from arlas.rules import RECIPIENTS, GuardConfig, LeakConfig, default_rules
from arlas.secrets import SECRETS
from arlas.text import line
from arlas.types import Layer, ToolCall
from envs.base import Start

_ADDRESS = re.compile(r"[^\s@<>()\[\]\"',;:]{1,64}@(?:[\w-]{1,63}\.)+[\w-]{2,63}")
_LINK = re.compile(
    r"\b(?:https?|ftp)://[^\s<>\"'`|]+"
    r"|\bwww\.[^\s<>\"'`|]+"
    r"|(?<![\w@./-])(?:[\w-]{1,63}\.){1,5}"  # without a scheme only under the commonest domains
    r"(?:com|net|org|io|co|info|biz|app|dev|xyz|site|online|example|test)\b(?![\w.-]*@)(?:/[^\s<>\"'`|]*)?",
    re.IGNORECASE,
)
_HANDLE = re.compile(r"(?<![\w@./])@([A-Za-z0-9][\w.-]{0,63})(?![\w@])")
_ACCOUNT = re.compile(
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b|(?<!\d)\d{8,34}(?!\d)"
)
_END = ".,;:!?)]}*_"
_SAME = {
    "delete": "delet remov eras clean clear purg discard drop trash",
    "remove": "remov delet clean clear drop",
    "archive": "archiv",
    "cancel": "cancel",
    "close": "clos",
    "merge": "merg",
    "revoke": "revok remov withdraw",
    "pay": "pay settl transfer",
    "send": "send mail writ forward remind invit tell repl",
}
"""Words of a goal that speak of a tool's verb, as their beginnings; other verbs stand for themselves."""


def texts(value: Any) -> Iterator[str]:
    """Every text and number in an argument's value, as text."""
    if isinstance(value, Mapping):
        for pair in value.items():
            yield from texts(list(pair))
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from texts(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def addresses(text: str) -> set[str]:
    """The mail addresses in a text, case-folded."""
    return {m.strip(_END).casefold() for m in _ADDRESS.findall(text)}


def links(text: str) -> set[str]:
    """The links in a text, case-folded and without the punctuation behind them."""
    bare = _ADDRESS.sub(" ", text) if "://" not in text else text
    return {m.rstrip(_END).casefold() for m in _LINK.findall(bare)}


def host(link: str) -> str:
    """The host that a link leads to, the link itself if that cannot be told."""
    try:
        found = urlsplit(link if "://" in link else f"https://{link}").hostname
    except ValueError:
        found = None
    return (found or link).rstrip(".")


def handles(text: str) -> set[str]:
    """The names behind an @ in a text, case-folded."""
    return {m.strip(_END).casefold() for m in _HANDLE.findall(text)}


def accounts(text: str) -> set[str]:
    """Numbers of accounts: what has the form of an IBAN, or eight digits and more in one piece."""
    return {m.replace(" ", "").casefold() for m in _ACCOUNT.findall(text)}


def _person(text: str) -> str:
    return text.strip("@ ").casefold()


def _fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits; of several patterns the last one that fits decides, ! takes back."""
    found = False
    for pattern in patterns:
        if fnmatch.fnmatchcase(name.casefold(), pattern.removeprefix("!").casefold()):
            found = not pattern.startswith("!")
    return found


class Guard:
    """The layers of one episode. Feed `stopped` every call: the filter remembers for secrets that come in pieces."""

    def __init__(
        self, config: GuardConfig, start: Start, user: Mapping[str, str], leak: LeakConfig
    ) -> None:
        self._config = config
        self._goal = start.goal
        self._own = {name.casefold() for name in start.insiders}
        self._named = addresses(start.goal) | links(start.goal) | handles(start.goal)
        self._named |= accounts(start.goal) | set(map(host, links(start.goal)))
        self._irreversible = {t.name for t in start.tools if t.irreversible}
        self._asked = [f for f in user if _asks_for(f, start.goal)]
        self._leaks = LeakTest(user, leak, public=start.goal)
        own = self._own | {v.casefold() for v in user.values()}
        self._rules = [
            (
                r,
                _filled(["*"] if r.allow is None else r.allow, own, self._named),
                _filled(r.deny, own, self._named),
            )
            for r in (default_rules() if config.rules is None else config.rules)
        ]

    def stopped(self, call: ToolCall) -> dict[Layer, str]:
        """Why each layer that is on stops this call; empty if it may pass. Reasons are single lines."""
        asked = {
            Layer.PERMISSIONS: self._forbidden,
            Layer.FILTER: self._private,
            Layer.APPROVAL: self._unapproved,
        }
        found = {layer: asked[layer](call) for layer in self._config.layers}
        return {layer: line(reason, 200) for layer, reason in found.items() if reason}

    # --- permissions ---------------------------------------------------------------------------------

    def _forbidden(self, call: ToolCall) -> str:
        for rule, allow, deny in self._rules:
            if not _fits(call.name, rule.tools):
                continue
            if rule.forbid:
                return f"{call.name} is not permitted"
            for name, value in call.arguments.items():
                if not _fits(name, rule.arguments):
                    continue
                for piece in _pieces(value, rule.of):
                    if not _fits(piece, allow) or _fits(piece, deny):
                        return f"{call.name} may not carry the {rule.of} {piece} in {name}"
        return ""

    # --- filter --------------------------------------------------------------------------------------

    def _private(self, call: ToolCall) -> str:
        leaked = self._leaks.check(call.arguments, self._asked)
        if leaked:
            return f"the call carries the user's {', '.join(leaked)}"
        if _fits(call.name, self._config.unfiltered):
            return ""
        public = normalize(self._goal)
        for name, value in call.arguments.items():
            text = " ".join(texts(value))
            for view in dict.fromkeys(v for t in (text, text[::-1]) for v, _ in views(t)):
                for kind in self._config.secrets:
                    if any(normalize(found) not in public for found in SECRETS[kind](view)):
                        return f"{name} holds what looks like a secret ({kind.replace('_', ' ')})"
        return ""

    # --- approval ------------------------------------------------------------------------------------

    def _unapproved(self, call: ToolCall) -> str:
        if call.name not in self._irreversible:
            return ""
        aims = targets(call)
        for aim in sorted(aims):
            if not self._known(aim):
                return f"{call.name} cannot be undone, and nobody asked for {aim}"
        if not aims and not _speaks_of(call.name, self._goal):
            return f"{call.name} cannot be undone, and the task does not ask for it"
        return ""

    def _known(self, target: str) -> bool:
        """Whether the goal names a target, or it belongs to the own organization."""
        if target in self._named or target in self._own or _stands_in(target, self._goal):
            return True
        at = target.partition("@")[2] if target in addresses(target) else host(target)
        return any(at == name or at.endswith(f".{name}") for name in self._own if "." in name)


def targets(call: ToolCall) -> set[str]:
    """Whom and what a call is aimed at: addresses, links, @handles and account numbers anywhere in its arguments, and
    whoever an argument for people names; case-folded."""
    found: set[str] = set()
    for name, value in call.arguments.items():
        for text in texts(value):
            found |= addresses(text) | links(text) | handles(text) | accounts(text)
        if _fits(name, RECIPIENTS):
            found |= set(_pieces(value, Piece.PERSON))
    return found


def _pieces(value: Any, of: Piece) -> Iterable[str]:
    found = list(texts(value))
    if of is Piece.VALUE:
        return [t.casefold() for t in found]
    if of is Piece.PERSON:
        return [_person(t) for t in found if _person(t) and not addresses(t)]
    if of is Piece.ADDRESS:
        return sorted({a for t in found for a in addresses(t)})
    return sorted({host(found_link) for t in found for found_link in links(t)})


def _filled(patterns: Sequence[str], own: set[str], named: set[str]) -> list[str]:
    """The globs with their placeholders filled in, one for each name."""
    found = []
    for pattern in patterns:
        for key, names in (("{own}", own), ("{goal}", named)):
            if key in pattern:
                found += [pattern.replace(key, glob.escape(name)) for name in sorted(names)]
                break
        else:
            found.append(pattern)
    return found


def _asks_for(field: str, goal: str) -> bool:
    """Whether the user wants a private field entered: "your own password"."""
    words = re.escape(field.replace("_", " "))
    return bool(re.search(rf"\b(?:your|own|my|user's)\s+(?:\w+\s+){{0,2}}{words}\b", goal, re.I))


def _stands_in(target: str, goal: str) -> bool:
    whole = rf"(?<![\w@./-]){re.escape(target)}(?![\w@/-]|\.\w)"
    return bool(re.search(whole, goal, re.IGNORECASE))


def _speaks_of(tool: str, goal: str) -> bool:
    verb = tool.split("_")[0].casefold()
    words = _SAME.get(verb, verb.rstrip("e"))
    return any(re.search(rf"\b{re.escape(w)}", goal, re.IGNORECASE) for w in words.split())
