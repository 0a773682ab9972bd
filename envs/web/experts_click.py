"""Experts for tasks that are solved by clicking.

Each rule takes the page and the match of its goal, and gives the next move. Raises `Lost`.
"""

from __future__ import annotations

import itertools
import operator
import re

from envs.web.experts_page import Element, Lost, Move, Page, choose, click, compact, first

Match = re.Match[str]

_COLORS = {"olive": "rgb(128,128,0)"}  # those that the page writes down by number
_SIDES = re.compile(r"sides=(\d+)")
_DURATION = re.compile(r"(\d+)h (\d+)m")
LINKS = ("clickable", "link")


def submit(page: Page, *labels: str) -> Move:
    """The click that ends a form: the element with one of the labels, else the last button."""
    for label in (*labels, "Submit"):
        found = page.named(label, "button", "clickable")
        if found:
            return click(found, f"press {found.label}")
    last = page.all("button")[-1:]
    return click(last[0] if last else None, "press the button")


def any_button(page: Page, m: Match) -> Move:
    return click(page.nth(1, "button"), "click the button")


def button(page: Page, m: Match) -> Move:
    label = m["label"]
    if label == "x":
        return click(page.named("Close", "button"), "close the dialog")
    return click(page.named(label, "button"), f'click the button "{label}"')


def button_sequence(page: Page, m: Match) -> Move:
    names = [n for n in m.groups() if n]
    return first(page, [click(page.named(n, "button"), f"click button {n}") for n in names])


def link(page: Page, m: Match) -> Move:
    return click(page.named(m["label"], *LINKS), f'click the link "{m["label"]}"')


def tab(page: Page, m: Match) -> Move:
    return click(page.named(m["label"], "tab"), f"click {m['label']}")


def search_tabs(page: Page, m: Match) -> Move:
    """Opens one tab or section after another until the link shows."""
    label = m["label"]
    found = page.named(label, *LINKS)
    if found and compact(found.label) == compact(label):
        return click(found, f'click the link "{label}"')
    for closed in page.all("tab"):
        move = click(closed, f'look for "{label}" in the next part')
        if "collapsed" in closed.words and not page.done(move.call):
            return move
    raise Lost


def collapsible(page: Page, m: Match) -> Move:
    closed = [e for e in page.all("tab") if "collapsed" in e.words]
    if closed:
        return click(closed[0], "expand the section")
    return submit(page)


def select(page: Page, m: Match) -> Move:
    """Ticks the named boxes, or the radio button, and submits."""
    names = [] if m["label"] == "nothing" else m["label"].split(", ")
    boxes = [page.named(n, "checkbox", "radio") for n in names]
    wrong = [e for e in page.all("checkbox") if "checked" in e.words and e not in boxes]
    if wrong:
        return click(wrong[0], f'leave "{wrong[0].label}" out')
    ticks = [click(box, f'select "{n}"') for box, n in zip(boxes, names, strict=True)]
    return first(page, [*ticks, submit(page)])


def select_from_list(page: Page, m: Match) -> Move:
    """Chooses from a list; names with a comma in them are whole options first."""
    box = page.nth(1, "listbox", "combobox")
    label = m["label"]
    names = [label] if box and label in box.options else label.split(", ")
    return first(page, [choose(box, names, f'choose "{label}"'), submit(page)])


def widget(page: Page, m: Match) -> Move:
    kind = m["label"]
    role = "textbox" if kind in ("text", "textarea") else kind
    found = page.all(role)
    if not found:
        raise Lost
    # A line of text and a text area look alike: take one that the page itself would take for either.
    return click(found[-1] if kind == "textarea" else found[0], f'click a "{kind}" widget')


def colored_box(page: Page, m: Match) -> Move:
    wanted = _COLORS.get(m["label"], m["label"])
    found = [e for e in page.all("clickable") if e.color == wanted]
    return click(found[0] if found else None, f"click the {m['label']} box")


def menu(page: Page, m: Match) -> Move:
    """Opens the menu, then the part of it that hides the item, which is told by its name or its icon."""
    items, label, icon = page.all("menuitem"), m["label"], m["icon"]
    for item in items:
        if item.label == label if label else f"icon={icon}" in item.words:
            return click(item, f'click the item "{label or icon}"')
    if not items:
        return click(page.named("Menu", "button"), 'open "Menu"')
    nested = [e for e in items if "caret" in e.traits]
    return click(nested[0] if nested else None, f'look for "{label or icon}"')


# --- shapes -------------------------------------------------------------------------------------------


def _kind(e: Element) -> tuple[str, str]:
    """Class and name of a figure, as the tasks call them."""
    if e.role in ("circle", "rect"):
        return "shape", {"rect": "rectangle"}.get(e.role, e.role)
    if e.role == "polygon":
        sides = _SIDES.search(e.traits)
        return "shape", "triangle" if sides and sides[1] == "3" else "polygon"
    if e.role == "clickable" and len(e.label) == 1:
        return ("digit" if e.label.isdigit() else "letter"), e.label
    return "", ""


def _fits(e: Element, wanted: str) -> bool:
    kind = _kind(e)
    if not kind[0] or not e.color:
        return False
    *traits, noun = wanted.split(" ")
    small = e.box[3] <= 12
    for trait in traits:
        if trait in ("small", "large"):
            if (trait == "small") != small:
                return False
        elif trait != e.color:
            return False
    return noun == "item" or noun in kind


def shape(page: Page, m: Match) -> Move:
    found = [e for e in page.all() if _fits(e, m["label"])]
    return click(found[0] if found else None, f"click a {m['label']}")


def count_shapes(page: Page, m: Match) -> Move:
    n = str(sum(_fits(e, m["label"]) for e in page.all()))
    return click(page.named(n, "button"), f"count, and there are {n}")


def identify_shape(page: Page, m: Match) -> Move:
    names = {"digit": "Number", "letter": "Letter"}
    for e in page.all():
        kind, name = _kind(e)
        if kind and e.color:
            answer = names.get(kind, name.capitalize())
            return click(page.named(answer, "button"), f"name the figure, a {answer.lower()}")
    raise Lost


def grid_point(page: Page, m: Match) -> Move:
    """Reads the grid's axes: the two lines cross at the origin, the dots stand a step apart."""
    lines = page.all("line")
    flat = [e for e in lines if e.box[3] == 0]
    tall = [e for e in lines if e.box[2] == 0]
    dots = page.all("circle")
    if not flat or not tall or not dots:
        raise Lost
    xs = sorted({e.box[0] for e in dots})
    step = xs[1] - xs[0] if len(xs) > 1 else 1
    x, y = tall[0].box[0] + int(m["x"]) * step, flat[0].box[1] - int(m["y"]) * step
    distance = {e: abs(e.box[0] + 4 - x) + abs(e.box[1] + 4 - y) for e in dots}
    return click(min(dots, key=distance.__getitem__), f"click ({m['x']},{m['y']})")


def circle_center(page: Page, m: Match) -> Move:
    return first(page, [click(page.nth(1, "circle"), "click the center"), submit(page)])


def ascending(page: Page, m: Match) -> Move:
    """The first number, then the covers that it leaves over the others, which stand in order."""
    covers = page.all("rect")
    if covers:
        return click(covers[0], "click the next number, under the first cover")
    numbers = [e for e in page.all("clickable") if re.fullmatch(r"\d{1,9}", e.label)]
    numbers.sort(key=lambda e: int(e.label))
    return first(page, [click(e, f"click {e.label} next") for e in numbers])


# --- choices that take a look at the page ---------------------------------------------------------------


def greatest(page: Page, m: Match) -> Move:
    cards = [e for e in page.all("clickable") if re.fullmatch(r"-?\d{1,9}", e.label)]
    if not cards:
        raise Lost
    best = max(cards, key=lambda e: int(e.label))
    return first(page, [click(best, f"pick the greatest, {best.label}"), submit(page)])


def ticket(page: Page, m: Match) -> Move:
    """Compares the offers by what the task asks for; each offer's duration stands before its button."""
    offers: list[tuple[int, int, Element]] = []
    minutes = 0
    for line in page.lines:
        time, price = _DURATION.fullmatch(line.label), re.search(r"\$(\d{1,9})", line.label)
        if not line.id and time:
            minutes = 60 * int(time[1]) + int(time[2])
        elif line.id and price:
            offers.append((minutes, int(price[1]), line))
    if not offers:
        raise Lost
    by = operator.itemgetter(0 if "duration" in m["label"] else 1)
    best = (min if m["label"].split()[0] in ("shortest", "cheapest") else max)(offers, key=by)
    return click(best[2], f"buy the ticket with the {m['label']}")


def odd_or_even(page: Page, m: Match) -> Move:
    plan: list[Move] = []
    for i, line in enumerate(page.lines):
        if line.id or not re.fullmatch(r"-?\d{1,9}", line.label):
            continue
        around = page.lines[max(0, i - 1) : i + 2]
        answer = "Odd" if int(line.label) % 2 else "Even"
        choice = [e for e in around if e.id and e.label == answer]
        plan.append(click(choice[0] if choice else None, f"mark {line.label} as {answer.lower()}"))
    return first(page, [*plan, submit(page)])


def social(page: Page, m: Match) -> Move:
    """The button under a user's post; some hide behind "more". A pressed button says "active"."""
    wanted, user = m["label"].casefold(), m["user"]
    pressed, target = 0, None
    for i, line in enumerate(page.lines):
        if line.id or user not in line.label.split():
            continue
        under: list[Element] = []
        for e in page.lines[i + 1 :]:
            if not e.id and any(w.startswith("@") for w in e.label.split()):
                break
            under.append(e)
        named = [e for e in under if e.id and e.label.casefold().startswith(wanted)]
        pressed += any("active" in e.label.split() for e in named)
        fresh = [e for e in named if "active" not in e.label.split()]
        more = [e for e in under if e.id and e.label == "more"]
        if target is None and (fresh or (more and not named)):
            target = (fresh or more)[0]
    asked = m.groupdict().get("n")
    if asked and pressed >= int(asked):
        return submit(page)
    return click(target, f'click "{m["label"]}" for {user}')


def order_food(page: Page, m: Match) -> Move:
    """Presses the plus behind each dish that is asked for, by name or by kind."""
    asked = m.groupdict()
    names, kind = (asked.get("names") or "").split(", "), asked.get("kind")
    plan: list[Move] = []
    said: list[str] = []
    for line in page.lines:
        if not line.id:
            said.append(line.label)
        elif line.label == "+":
            wanted = kind in " ".join(said).split() if kind else bool(set(said) & set(names))
            if wanted and (not kind or len(plan) < int(m["n"])):
                plan.append(click(line, "order one more that fits" if kind else "order it"))
            said = []
    return first(page, [*plan, submit(page, "Order!")])


def navigate_tree(page: Page, m: Match) -> Move:
    """Opens folder after folder until the name shows."""
    label = m["label"]
    found = page.named(label, "clickable", "listitem")
    if found:
        return click(found, f'click "{label}"')
    lines = page.all()
    for mark, folder in itertools.pairwise(lines):
        move = click(folder, f'look for "{label}" inside a folder')
        if "expandable-hitarea" in mark.label and not page.done(move.call):
            return move
    raise Lost
