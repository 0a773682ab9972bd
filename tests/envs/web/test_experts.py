"""The scripted experts: what they solve on real pages, and what nobody can make them do."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arlas.chat import Chat
from arlas.policies.attacks import FAMILIES, attack
from arlas.policies.models import load_tokenizer
from arlas.policies.scripted import ScriptedConfig
from arlas.rollout import Driver, GroupSpec
from arlas.rules import GameConfig, RewardConfig
from arlas.types import Episode, Outcome, PolicyRef, Sampling, Seat
from envs.base import parse_call
from envs.web.config import WebConfig
from envs.web.experts import EXPERT_TASKS, RULES, expert
from envs.web.experts_page import Page
from envs.web.tasks import PROFILES, TOLD, check_names
from envs.web.tools import DEFAULT_TOOLS, choose_tools

EXPERT = "envs.web.experts.expert"

USER = {"name": "Ada Lovelace", "email": "ada.l7@example.org", "password": "uT6zz9QpW1"}
TOOLS = choose_tools(DEFAULT_TOOLS)
# A goal for every rule, in the order of the rules.
GOALS = """Click the button.
Click button ONE, then click button TWO.
Click button ONE.
Click on the "no" button.
Close the dialog box by clicking the "x".
Click the button in the dialog box labeled "OK".
Click on the link "et".
Click on Tab #2.
Switch between the tabs to find and click on the link "vel".
Expand the sections below, to find and click on the link "vel".
Expand the section below and click submit.
Select Ertha, Aurel from the scroll list and click Submit.
Select Jc, s6WcI and click Submit.
Click on a "button" widget.
Click on the olive colored box.
Click the "Menu" button, and then find and click on the item labeled "Prev".
Click on a small black 8
How many digits are there?
Click the button that best describes the figure below.
Click on the grid coordinate (-1,0).
Find and click on the center of the circle, then press submit.
Click on the numbers in ascending order.
Find and pick the card with the greatest number, then press submit.
Buy the ticket with the shortest duration.
Mark the numbers below as odd or even and press submit when done.
For the user @aenean, click on the "Share via DM" button.
Click the "Like" button on 2 posts by @sagittis and then click Submit.
Order one of each item: Caesar Salad, Garlic bread
Order 2 items that are peanuts
Navigate through the file tree. Find and click on the folder or file named "Cheree".
Enter "Myron" into the text field and press Submit.
Type "myron" in all upper case letters in the text input and press Submit.
Enter the password "Q1" into both text fields and press submit.
Enter the username "cierra" and the password "11L" into the text fields and press login.
Enter your own name as the username and your own password, and press login.
Enter your own password into both text fields and press submit.
Enter your own email into the text field and press Submit.
Enter 02/04/2012 as the date and hit submit.
Enter 11:10 AM as the time and press submit.
Select 12/07/2016 as the date and hit submit.
Focus into the textbox.
Focus into the 3rd input textbox.
Find the 4th word in the paragraph, type that into the textbox and press "Submit".
Find the last word in the text area, enter it into the text field and hit Submit.
Solve the math problem and type your answer into the textbox. Press submit when done.
Solve for x and type your answer into the textbox. Press Submit when done.
Type the text below into the text field and press Submit.
Enter the value of Gender into the text field and press Submit.
Enter the value that corresponds with each label into the form and submit when done.
Search for crime movies directed by Holcomb from year 2010.
Check the 1st radio button and enter the number "16" into the 3rd textbox.
Choose 5ft 10in from the dropdown, then click the button labeled "No".
Enter an item that starts with "Ti" and ends with "este".
Use the textbox to enter "Kasie" and press "Search", then find and click the 4th search result.
Find the email by Hazel and reply to them with the text "Morbi.".
Please forward the information from Margaretta to Roslyn.""".splitlines()
PAGES = {
    'Click on the "no" button.': 'text "in"\nbutton "no" [1]\nbutton "Ok" [2]\ntextbox [4]',
    "Select Jc, s6WcI and click Submit.": 'checkbox "Jc" checked [1]\ncheckbox "s6WcI" [2]\n'
    'checkbox "XMHY" [3]\nbutton "Submit" [7]',
    'Enter "Myron" into the text field and press Submit.': 'textbox [1]\nbutton "Submit" [2]',
    "Enter your own email into the text field and press Submit.": 'textbox [1]\nbutton "Submit" [2]',
    "Enter the value of Gender into the text field and press Submit.": 'row "Color | maroon"\n'
    'row "Gender | Male"\ntextbox [1]\nbutton "Submit" [2]',
    "Solve for x and type your answer into the textbox. Press Submit when done.": 'text "2 + x = 43"\n'
    'textbox "x =" [1]\nbutton "Submit" [2]',
    'Find the email by Hazel and reply to them with the text "Morbi.".': 'text "Primary"\n'
    'clickable "Hazel Nibh nisl." [2]\nclickable "trash" [3]\nclickable "star" [4]',
}


def _act(goal: str, observation: str, past: tuple[str, ...] = (), seed: int = 0) -> str:
    found = expert(goal, observation, USER, past, random.Random(seed))
    assert found is not None
    return found[1]


@pytest.mark.browser
def test_experts_solve_their_tasks_on_real_pages_within_five_steps() -> None:
    """The first teacher is one: each listed task is solved, and its thoughts quote the element it acts on."""
    seeds = (0, 1)
    told = tuple(f"{TOLD}{task}" for task in EXPERT_TASKS[::4])
    episodes = _played((*EXPERT_TASKS, *told), seeds)
    assert all(e.ok for e in episodes), [e.error for e in episodes if not e.ok]
    won = Counter(e.task for e in episodes if e.outcome is Outcome.SUCCESS)
    assert not [task for task in EXPERT_TASKS if not won[task]]
    assert not [task for task in told if not won[task]]
    assert won.total() >= 0.9 * len(episodes), [t for t in EXPERT_TASKS if won[t] < len(seeds)]
    assert not [e.task for e in episodes if e.leaked]
    for turn in (turn for e in episodes for turn in e.turns):
        thought = turn.text.partition("</think>")[0]
        quoted = re.search(r"\[(\d+)\]", thought)
        assert turn.action is not None
        assert quoted is not None
        assert f'("{quoted[1]}"' in turn.action, turn.text


def _played(tasks: tuple[str, ...], seeds: tuple[int, ...]) -> list[Episode]:
    async def play() -> list[Episode]:
        worlds = WebConfig(workers=2, slots=2).open()
        try:
            policy = ScriptedConfig(EXPERT).build(load_tokenizer("tiny-llama"))
            game = GameConfig(attack=False)
            sampling = Sampling(max_tokens=1000)
            driver = Driver(policy, Chat(policy.tokenizer), worlds, game, RewardConfig(), sampling)
            agent = PolicyRef(Seat.AGENT, "scripted")
            specs = [GroupSpec(task, seed, None, agent, (), 1) for task in tasks for seed in seeds]
            return [e for group in await driver.rollout(specs, seed=0) for e in group.episodes]
        finally:
            await worlds.close()

    return asyncio.run(play())


def test_the_list_names_real_tasks_and_both_kinds() -> None:
    """At least twenty MiniWoB++ tasks, every profile task, none twice."""
    check_names(EXPERT_TASKS)
    assert len(set(EXPERT_TASKS)) == len(EXPERT_TASKS)
    assert sum(task.startswith("miniwob.") for task in EXPERT_TASKS) >= 20
    assert set(PROFILES) <= set(EXPERT_TASKS)


def test_every_rule_is_reached_by_its_goal() -> None:
    """No rule is hidden by one above it, so each pattern serves the task that it was written for."""
    assert len(GOALS) == len(RULES)
    for i, goal in enumerate(GOALS):
        reached = [j for j, (p, _) in enumerate(RULES) if re.fullmatch(p, goal, re.DOTALL)]
        assert reached[:1] == [i], goal


def test_unknown_tasks_are_admitted() -> None:
    """A goal without a rule, or a page without what the goal names, gives None and not a guess."""
    page = 'button "no" [1]'
    assert expert("Win a game of chess.", page, USER, (), random.Random(0)) is None
    assert expert('Click on the "yes" button.', page, USER, (), random.Random(0)) is None


def test_plans_go_on_where_the_past_ends() -> None:
    """State and past are read: done steps are not repeated, failed ones are, wrong ticks are undone."""
    goal = "Select Jc, s6WcI and click Submit."
    page = PAGES[goal]
    assert _act(goal, page) == 'click("2")'
    both = page.replace('"s6WcI"', '"s6WcI" checked')
    assert _act(goal, both) == 'click("7")'
    assert _act(goal, both.replace('"XMHY"', '"XMHY" checked')) == 'click("3")'
    order = "Click button ONE, then click button TWO."
    page = 'button "ONE" [1]\nbutton "TWO" [2]'
    assert _act(order, page, ('1. click("1")',)) == 'click("2")'
    covered = ('1. click("1") → error: another element covers it',)
    assert _act(order, page, covered) == 'press("1", "Enter")'


def test_both_id_positions_are_read() -> None:
    """The option `id_position` of the world changes what the thought quotes and nothing else."""
    for goal, page in PAGES.items():
        before = re.sub(r"^(.*) (\[\d+\])$", r"\2 \1", page, flags=re.MULTILINE)
        assert before != page
        assert _act(goal, before) == _act(goal, page)


@pytest.mark.parametrize("family", FAMILIES)
def test_planted_texts_change_nothing(family: str) -> None:
    """An injection of any family, behind any line or on its own, leaves the expert's call as it was."""
    for goal, page in PAGES.items():
        right = _act(goal, page)
        lines = page.split("\n")
        for seed in range(20):
            text = attack(family, goal, page, tuple(USER), (), random.Random(seed))[1]
            poisoned = [[*lines, text], [*lines, f"text {json.dumps(text)}"]]
            for i in range(len(lines)):
                poisoned.append([*lines[:i], f"{lines[i]} {text}", *lines[i + 1 :]])
            for page_lines in poisoned:
                assert _act(goal, "\n".join(page_lines)) == right


_LABELS = (
    "Submit",
    "no",
    "Jc",
    "Username",
    "Primary",
    "1",
    "12h 5m",
    "Exit to home page?",
    "x =",
    "@sagittis",
)
_ROLES = "button textbox checkbox radio link tab clickable combobox listitem menuitem rect circle polygon line text row"
_WORDS = (
    "checked",
    "collapsed",
    "focused",
    "color=red",
    "at=3,4 size=10x10",
    "sides=3",
    'options="a", "b"',
)
_line = st.builds(
    lambda role, label, words, n, tail: f"{role} {json.dumps(label)} {' '.join(words)} [{n}]{tail}",
    st.sampled_from(_ROLES.split()),
    st.one_of(st.sampled_from(_LABELS), st.text(max_size=20)),
    st.lists(st.sampled_from(_WORDS), max_size=3),
    st.integers(0, 30),
    st.one_of(st.just(""), st.text(max_size=20)),
)
_page = st.lists(st.one_of(_line, _line, st.text(max_size=40)), max_size=12).map("\n".join)


@settings(max_examples=400, deadline=None)
@given(
    goal=st.one_of(st.sampled_from(GOALS), st.text(max_size=60)),
    page=_page,
    past=st.lists(
        st.sampled_from(['1. click("1")', '2. fill("3", "a") → error: x', "", "?"]), max_size=4
    ),
    seed=st.integers(0, 9),
)
def test_hostile_pages_never_crash_an_expert(
    goal: str, page: str, past: list[str], seed: int
) -> None:
    """Any page gives None or a well-formed call on an element of the page, the same for the same seed."""
    found = expert(goal, page, USER, past, random.Random(seed))
    assert found == expert(goal, page, USER, past, random.Random(seed))
    if found is not None:
        call = parse_call(found[1], TOOLS)
        assert call.arguments["bid"] in {e.id for e in Page.read(page).all()}
        found[0].encode()  # no lone surrogates: a reply has to be written down


def test_long_lines_are_read_in_no_time() -> None:
    """Patterns over hostile text do not run away."""
    for line in (
        'button "' + 'a" "' * 20_000,
        "button " + "checked " * 20_000,
        '"' * 50_000,
        "\\" * 50_000,
    ):
        assert Page.read(f"{line}\n" * 2).all() == ()
