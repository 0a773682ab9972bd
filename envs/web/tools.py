"""What the agent may do on a page: a table of tools, each a plain function over Playwright.

Names and parameters are those of BrowserGym's action set; the text of a call is parsed by
`envs.base.parse_call` and never executed. There is no tool that leaves the page, opens a file or runs a script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envs.base import Param, Tool, ToolCall

if TYPE_CHECKING:  # a config names tools where no browser is installed
    from playwright.sync_api import Page

TIMEOUT_MS = 1_500
MAX_VALUE = 2_000  # characters
MAX_WAIT_MS = 1_000
MAX_PIXELS = 5_000


class ToolFailed(Exception):
    """A tool's own complaint; the text is shown to the model."""


def target(page: Page, bid: str) -> str:
    """The selector of the element that the observation calls ``bid``. Raises `ToolFailed`.

    The engine ``bid`` is registered in `envs.web.browser`; it knows ids and nothing else.
    """
    bid = bid.strip("[] ")[:20]
    if not bid.isdecimal() or not page.evaluate("id => window.__arlas.find(id) !== null", bid):
        raise ToolFailed(f"there is no element [{bid}] on the page")
    return f"bid={bid}"


def _click(page: Page, bid: str) -> None:
    page.click(target(page, bid), timeout=TIMEOUT_MS)


def _dblclick(page: Page, bid: str) -> None:
    page.dblclick(target(page, bid), timeout=TIMEOUT_MS)


def _hover(page: Page, bid: str) -> None:
    page.hover(target(page, bid), timeout=TIMEOUT_MS)


def _focus(page: Page, bid: str) -> None:
    page.focus(target(page, bid), timeout=TIMEOUT_MS)


def _check(page: Page, bid: str) -> None:
    page.check(target(page, bid), timeout=TIMEOUT_MS)


def _uncheck(page: Page, bid: str) -> None:
    page.uncheck(target(page, bid), timeout=TIMEOUT_MS)


def _clear(page: Page, bid: str) -> None:
    page.fill(target(page, bid), "", timeout=TIMEOUT_MS)


def _fill(page: Page, bid: str, value: str) -> None:
    if len(value) > MAX_VALUE:
        raise ToolFailed(f"value is longer than {MAX_VALUE} characters")
    box = target(page, bid)
    single_line, wants_keys = page.evaluate(
        "id => window.__arlas.box(id)", box.removeprefix("bid=")
    )
    if single_line:
        value = " ".join(value.splitlines())
    if wants_keys and value:  # a menu of suggestions, or a page that listens to the keyboard
        page.fill(box, value[:-1], timeout=TIMEOUT_MS)
        page.type(box, value[-1], timeout=TIMEOUT_MS)
    else:
        page.fill(box, value, timeout=TIMEOUT_MS)


def _select_option(page: Page, bid: str, options: Any) -> None:
    chosen = [options] if isinstance(options, str) else options
    if not isinstance(chosen, (list, tuple)) or not all(isinstance(o, str) for o in chosen):
        raise ToolFailed("options must be a text or a list of texts")
    labels = [o[:MAX_VALUE] for o in chosen[:100]]
    page.select_option(target(page, bid), labels, timeout=TIMEOUT_MS)


def _press(page: Page, bid: str, key_comb: str) -> None:
    page.press(target(page, bid), _key(key_comb), timeout=TIMEOUT_MS)


def _keyboard_press(page: Page, key: str) -> None:
    page.keyboard.press(_key(key))


def _keyboard_type(page: Page, text: str) -> None:
    if len(text) > 200:
        raise ToolFailed("text is longer than 200 characters")
    page.keyboard.type(text)


def _key(key: str) -> str:
    if len(key) > 50:
        raise ToolFailed("that is no key")
    return key


def _drag_and_drop(page: Page, from_bid: str, to_bid: str) -> None:
    source, goal = target(page, from_bid), target(page, to_bid)
    page.hover(source, timeout=TIMEOUT_MS)
    page.mouse.down()
    try:
        box = page.locator(goal).bounding_box(timeout=TIMEOUT_MS)
        if box is None:
            raise ToolFailed(f"element [{to_bid[:20]}] is not visible")
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    finally:
        page.mouse.up()


def _scroll(page: Page, delta_x: float, delta_y: float) -> None:
    page.mouse.wheel(_pixels(delta_x), _pixels(delta_y))


def _mouse_click(page: Page, x: float, y: float) -> None:
    page.mouse.click(_pixels(x), _pixels(y))


def _mouse_drag_and_drop(
    page: Page, from_x: float, from_y: float, to_x: float, to_y: float
) -> None:
    page.mouse.move(_pixels(from_x), _pixels(from_y))
    page.mouse.down()
    try:
        page.mouse.move(_pixels(to_x), _pixels(to_y), steps=5)
    finally:
        page.mouse.up()


def _pixels(value: float) -> float:
    if math.isnan(value):
        raise ToolFailed("that is no number")
    return float(max(-MAX_PIXELS, min(MAX_PIXELS, value)))


def _noop(page: Page, wait_ms: float = 100) -> None:
    page.wait_for_timeout(max(0.0, min(MAX_WAIT_MS, wait_ms)))


def _tool(name: str, doc: str, *params: Param) -> Tool:
    return Tool(name, params, doc)


_BID = Param("bid")
_TABLE: tuple[tuple[Tool, Callable[..., None]], ...] = (
    (_tool("click", "Clicks an element.", _BID), _click),
    (_tool("fill", "Types a text into a box.", _BID, Param("value")), _fill),
    (
        _tool("select_option", "Chooses from a list.", _BID, Param("options", "any")),
        _select_option,
    ),
    (_tool("press", "Presses a key on an element.", _BID, Param("key_comb")), _press),
    (_tool("hover", "Moves the mouse over an element.", _BID), _hover),
    (_tool("focus", "Puts the cursor into a box.", _BID), _focus),
    (_tool("clear", "Empties a box.", _BID), _clear),
    (_tool("check", "Ticks a box.", _BID), _check),
    (_tool("uncheck", "Unticks a box.", _BID), _uncheck),
    (_tool("dblclick", "Clicks an element twice.", _BID), _dblclick),
    (
        _tool("drag_and_drop", "Drags one element to another.", Param("from_bid"), Param("to_bid")),
        _drag_and_drop,
    ),
    (
        _tool(
            "scroll",
            "Turns the mouse wheel, in pixels.",
            Param("delta_x", "float"),
            Param("delta_y", "float"),
        ),
        _scroll,
    ),
    (
        _tool(
            "mouse_click", "Clicks a point of the page.", Param("x", "float"), Param("y", "float")
        ),
        _mouse_click,
    ),
    (
        _tool(
            "mouse_drag_and_drop",
            "Drags from point to point.",
            *(Param(p, "float") for p in ("from_x", "from_y", "to_x", "to_y")),
        ),
        _mouse_drag_and_drop,
    ),
    (_tool("keyboard_press", "Presses a key.", Param("key")), _keyboard_press),
    (_tool("keyboard_type", "Types a text where the cursor is.", Param("text")), _keyboard_type),
    (
        _tool("noop", "Waits, in milliseconds.", Param("wait_ms", "float", False, 1000)),
        _noop,
    ),
)

TOOLS: dict[str, Tool] = {tool.name: tool for tool, _ in _TABLE}
_HANDS: dict[str, Callable[..., None]] = {tool.name: hand for tool, hand in _TABLE}

DEFAULT_TOOLS = ("click", "fill", "select_option", "press")


def choose_tools(names: Sequence[str]) -> tuple[Tool, ...]:
    """The named tools in the given order. Raises ValueError on an unknown one."""
    unknown = [name for name in names if name not in TOOLS]
    if unknown or not names:
        raise ValueError(f"unknown web tools {unknown}; there are: {', '.join(TOOLS)}")
    return tuple(TOOLS[name] for name in names)


def use(page: Page, call: ToolCall) -> None:
    """Plays a parsed call. Raises `ToolFailed`, or Playwright's own errors."""
    arguments: Mapping[str, Any] = call.arguments
    _HANDS[call.name](page, **arguments)
