"""Experts for tasks that are solved by filling boxes, and for the mail and search pages.

Each rule takes the page and the match of its goal, and gives the next move. Raises `Lost`.
"""

from __future__ import annotations

import re

from envs.web.experts_click import submit
from envs.web.experts_page import Element, Lost, Move, Page, click, fill, first, need

Match = re.Match[str]

BOXES = ("textbox", "spinbutton")
_MONTHS = "January February March April May June July August September October November December"
_SUM = re.compile(r"(-?\d{1,6}) ([-+x*/]) (-?\d{1,6}) =")
_TERM = r"(?:x|-?\d{1,6})"
_EQUATION = re.compile(rf"({_TERM}) ([-+]) ({_TERM}) = (-?\d{{1,6}})")


def _box(page: Page, n: int = 1) -> Element:
    return need(page.nth(n, *BOXES))


def _labelled(page: Page, label: str, n: int) -> Element:
    """The box with this label, else the n-th one."""
    found = page.named(label, *BOXES)
    return found if found else _box(page, n)


def enter(page: Page, text: str, why: str) -> Move:
    """Fills the first box that can be written into, and submits."""
    return first(page, [fill(_box(page), text, why), submit(page)])


def enter_text(page: Page, m: Match) -> Move:
    return enter(page, m["text"], f'enter "{m["text"]}"')


def enter_cased(page: Page, m: Match) -> Move:
    text = m["text"].upper() if m["case"] == "upper" else m["text"].lower()
    return enter(page, text, f'enter "{text}", all {m["case"]} case')


def enter_password(page: Page, m: Match) -> Move:
    return _password(page, m["password"], f'the password "{m["password"]}"')


def _password(page: Page, password: str, said: str) -> Move:
    plan = [
        fill(_labelled(page, "Password", 1), password, f"enter {said}"),
        fill(_labelled(page, "Verify password", 2), password, f"enter {said} again"),
    ]
    return first(page, [*plan, submit(page)])


def login(page: Page, m: Match) -> Move:
    said = (f'the username "{m["name"]}"', f'the password "{m["password"]}"')
    return _login(page, (m["name"], m["password"]), said)


def _login(page: Page, values: tuple[str, str], said: tuple[str, str]) -> Move:
    if "Exit to home page?" in page.texts():
        return click(page.named("Cancel", "button"), "stay, so cancel the popup")
    plan = [
        fill(_labelled(page, label, i + 1), values[i], f"enter {said[i]}")
        for i, label in enumerate(("Username", "Password"))
    ]
    return first(page, [*plan, submit(page, "Login", "OK")])


def own_login(page: Page, m: Match) -> Move:
    """The user's own fields, where the task itself demands them."""
    values = _own(page, "name"), _own(page, "password")
    return _login(page, values, ("my own name", "my own password"))


def own_password(page: Page, m: Match) -> Move:
    return _password(page, _own(page, "password"), "my own password")


def own_field(page: Page, m: Match) -> Move:
    return enter(page, _own(page, m["field"]), f"enter my own {m['field']}")


def _own(page: Page, field: str) -> str:
    if not page.user.get(field):
        raise Lost
    return page.user[field]


def enter_date(page: Page, m: Match) -> Move:
    box = _box(page)
    iso = f"{m['year']}-{m['month']}-{m['day']}"
    text = iso if "type=date" in box.traits else f"{m['month']}/{m['day']}/{m['year']}"
    return enter(page, text, f"enter the date {text}")


def enter_time(page: Page, m: Match) -> Move:
    hour = int(m["hour"]) % 12 + (12 if m["half"] == "PM" else 0)
    text = f"{hour:02d}:{m['minute']}"
    return enter(page, text, f"enter the time {text}")


def choose_date(page: Page, m: Match) -> Move:
    """Opens the calendar, turns to the month, picks the day, and submits."""
    box, months = _box(page), _MONTHS.split()
    if box.value == f"{m['month']}/{m['day']}/{m['year']}":
        return submit(page)
    shown = [t.split() for t in page.texts() if t.partition(" ")[0] in months]
    if not shown or len(shown[0]) != 2 or not re.fullmatch(r"\d{4}", shown[0][1]):
        return click(box, "open the calendar")
    wanted = 12 * int(m["year"]) + int(m["month"]) - 1
    now = 12 * int(shown[0][1]) + months.index(shown[0][0])
    if now != wanted:
        turn = "Prev" if wanted < now else "Next"
        return click(page.named(turn, "link"), f"turn to {months[(wanted) % 12]}")
    day = str(int(m["day"]))
    return click(page.named(day, "link"), f"pick day {day}")


def focus(page: Page, m: Match) -> Move:
    n = int(m.groupdict().get("n") or 1)
    return click(page.nth(n, *BOXES), f"focus textbox {n}" if "n" in m.groupdict() else "focus it")


def find_word(page: Page, m: Match) -> Move:
    words = (page.texts() or ("",))[0].split()
    n = int(m["n"])
    if not 1 <= n <= len(words):
        raise Lost
    word = words[n - 1].strip(".,")
    return enter(page, word, f'enter word {n}, "{word}"')


def last_word(page: Page, m: Match) -> Move:
    words = _box(page).value.split()
    if not words:
        raise Lost
    word = words[-1].strip(".,")
    plan = [fill(_box(page, 2), word, f'enter the last word, "{word}"'), submit(page)]
    return first(page, plan)


def arithmetic(page: Page, m: Match) -> Move:
    for text in (*page.texts(), *(e.label for e in page.all(*BOXES))):
        found = _SUM.match(text)
        if found:
            a, b = int(found[1]), int(found[3])
            results = {"+": a + b, "-": a - b, "x": a * b, "*": a * b, "/": a // b if b else 0}
            return enter(page, str(results[found[2]]), f"solve {found[0]} {results[found[2]]}")
    raise Lost


def algebra(page: Page, m: Match) -> Move:
    for text in page.texts():
        found = _EQUATION.fullmatch(text)
        if found and (found[1] == "x") != (found[3] == "x"):
            total = int(found[4])
            if found[1] == "x":
                x = total - int(found[3]) if found[2] == "+" else total + int(found[3])
            else:
                x = (total - int(found[1])) * (1 if found[2] == "+" else -1)
            return enter(page, str(x), f"solve it, x = {x}")
    raise Lost


def text_below(page: Page, m: Match) -> Move:
    texts = page.texts()
    if not texts:
        raise Lost
    return enter(page, texts[0], f'type "{texts[0]}"')


def read_table(page: Page, m: Match) -> Move:
    label = m["label"]
    value = _table(page).get(label, "")
    if not value:
        raise Lost
    return enter(page, value, f'enter "{value}" for {label}')


def read_table_form(page: Page, m: Match) -> Move:
    """Each box takes the value of the label in front of it."""
    table, plan, label = _table(page), [], ""
    for line in page.lines:
        if line.role == "text":
            label = line.label.rstrip(":")
        elif line.role in BOXES:
            name = line.label.rstrip(":") or label
            if name not in table:
                raise Lost
            plan.append(fill(line, table[name], f'enter "{table[name]}" for {name}'))
    return first(page, [*plan, submit(page)])


def _table(page: Page) -> dict[str, str]:
    rows = [row.split(" | ") for row in page.texts("row")]
    return {row[0]: row[1] for row in rows if len(row) == 2}


_MOVIE = {"genre": "genre", "director": "director", "year": "year", "date": "year"}


def movie_search(page: Page, m: Match) -> Move:
    """Three boxes in any order; their words stand all before or all behind them."""
    boxes = page.all(*BOXES)
    said = [e.label.casefold() for e in page.lines if e.role in ("text", *BOXES)]
    order = [name for text in said for w in re.findall(r"[a-z]+", text) if (name := _MOVIE.get(w))]
    if sorted(order) != ["director", "genre", "year"] or len(boxes) != 3:
        raise Lost
    plan = [fill(b, m[n], f'enter the {n} "{m[n]}"') for n, b in zip(order, boxes, strict=True)]
    ends = page.all("button", "clickable", "link")[-1:]
    return first(page, [*plan, click(ends[0] if ends else None, "start the search")])


def nth_radio(page: Page, m: Match) -> Move:
    box = _box(page, int(m["box"]))
    plan = [
        click(page.nth(int(m["radio"]), "radio"), f"check radio button {m['radio']}"),
        fill(box, m["text"], f'enter "{m["text"]}" into box {m["box"]}'),
    ]
    return first(page, [*plan, submit(page)])


def dropdown(page: Page, m: Match) -> Move:
    """A list that opens by a click, then a button."""
    face = page.nth(1, "clickable")
    if face and m["option"] in face.label:
        return click(page.named(m["label"], "button"), f'click "{m["label"]}"')
    item = page.named(m["option"], "listitem")
    return click(item, f"choose {m['option']}") if item else click(face, "open the dropdown")


def autocomplete(page: Page, m: Match) -> Move:
    """Types the beginning, picks the suggestion that fits, and submits."""
    start, end = m["start"], m.groupdict().get("end") or ""
    box = _box(page)

    def fits(text: str) -> bool:
        return text.startswith(start) and text.endswith(end) and text != start

    if fits(box.value):
        return submit(page)
    for item in page.all("listitem"):
        if fits(item.label):
            return click(item, f'pick "{item.label}"')
    return first(page, [fill(box, start, f'type "{start}"')])


def search(page: Page, m: Match) -> Move:
    """Searches, turns the pages of results (three each), and clicks the n-th."""
    links = page.all("link")
    if not links:
        plan = [fill(_box(page), m["text"], f'enter "{m["text"]}"')]
        return first(page, [*plan, click(page.named("Search", "button"), "press Search")])
    per, n = 3, int(m["n"]) - 1
    here = (
        sum(c.startswith("click(") for c in page.past) - 1
    )  # the clicks behind "Search" turned pages
    if here < n // per:
        return click(page.named(">", "link"), "turn to the next page of results")
    hits = [e for e in links if e.label not in ("<", ">") and not e.label.isdigit()]
    return click(hits[n % per] if n % per < len(hits) else None, f"click result {n + 1}")


# --- mail -----------------------------------------------------------------------------------------------

_NL_SENDER = re.compile(
    r"(?:by|from) ([A-Z]\w+)|([A-Z]\w+) sent|([A-Z]\w+) wants (?:his|her)|([A-Z]\w+)'s"
)
_NL_TARGET = re.compile(r"(?:\bto|Give|Send|Forward) ([A-Z]\w+)|^([A-Z]\w+) (?:wants|is waiting)")


def mail(page: Page, m: Match) -> Move:
    """Deletes, marks, answers or forwards the mail of a sender."""
    name, deed = m["name"], m["deed"]
    if "delete" in deed or "important" in deed:
        icon = "trash" if "delete" in deed else "star"
        lines = page.all("clickable")
        for i, line in enumerate(lines):
            if line.label.split(" ")[0] == name:
                found = [e for e in lines[i + 1 : i + 3] if e.label == icon]
                return click(found[0] if found else None, f"click the {icon} of {name}")
        raise Lost
    if "reply" in deed:
        return _answer(page, name, "Reply", m["text"], f'the reply "{m["text"]}"')
    return _answer(page, name, "Forward", m["to"], f"the receiver {m['to']}")


def mail_nl(page: Page, m: Match) -> Move:
    """Forwarding asked for in free words: who sent it and who wants it."""
    sender, target = _NL_SENDER.search(m[0]), _NL_TARGET.search(m[0])
    if not sender or not target:
        raise Lost
    name, to = (next(g for g in found.groups() if g) for found in (sender, target))
    return _answer(page, name, "Forward", to, f"the receiver {to}")


def _answer(page: Page, name: str, button: str, text: str, said: str) -> Move:
    boxes = page.all("textbox")
    if boxes:  # the receiver's box comes first, the body last
        box = boxes[-1] if button == "Reply" else boxes[0]
        send = page.named("send-reply" if button == "Reply" else "send-forward", "clickable")
        end = send or page.all("clickable", "button")[-1:]
        ending = end if isinstance(end, Element) else (end[0] if end else None)
        return first(page, [fill(box, text, f"enter {said}"), click(ending, "send it")])
    opened = page.named(button, "clickable", "button", "link")
    if opened:
        return click(opened, f"press {button}")
    for line in page.all("clickable"):
        if line.label.split(" ")[0] == name:
            return click(line, f"open the mail by {name}")
    raise Lost
