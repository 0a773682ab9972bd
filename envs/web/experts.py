"""Scripted experts for MiniWoB++ tasks: teachers that see the goal and the observation text, like any agent.

A rule is a pattern of goals and a function that finds the next move on the page. Everything is a pure
function of what the agent was told; texts of outsiders are not read at all.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

from envs.web import experts_click as clicks
from envs.web import experts_forms as forms
from envs.web.experts_page import Lost, Move, Page, by_key
from envs.web.tasks import PROFILES, TOLD_GOAL

Rule = Callable[[Page, "re.Match[str]"], Move]

_DATE = r"(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4})"
_NTH = r"(?P<n>\d{1,2})(?:st|nd|rd|th)"
# The first pattern that fits a whole goal decides.
RULES: tuple[tuple[str, Rule], ...] = (
    (r"Click the button\.", clicks.any_button),
    (r"Click button (\w+), then click button (\w+)\.", clicks.button_sequence),
    (r"Click button (\w+)\.", clicks.button_sequence),
    (r'Click on the "(?P<label>.+)" button\.', clicks.button),
    (r'Close the dialog box by clicking the "(?P<label>x)"\.', clicks.button),
    (r'Click the button in the dialog box labeled "(?P<label>.+)"\.', clicks.button),
    (r'Click on the link "(?P<label>.+)"\.', clicks.link),
    (r"Click on (?P<label>Tab #\d+)\.", clicks.tab),
    (r'Switch between .* click on the link "(?P<label>.+)"\.', clicks.search_tabs),
    (r'Expand the sections .* click on the link "(?P<label>.+)"\.', clicks.search_tabs),
    (r"Expand the section below and click submit\.", clicks.collapsible),
    (r"Select (?P<label>.+) from the (?:scroll )?list and click Submit\.", clicks.select_from_list),
    (r"Select (?P<label>(?!words similar).+) and click Submit\.", clicks.select),
    (r'Click on a "(?P<label>\w+)" widget\.', clicks.widget),
    (r"Click on the (?P<label>\w+) colored box\.", clicks.colored_box),
    (
        r'Click the "Menu" button.* (?:item labeled "(?P<label>.+)"|with the "(?P<icon>.+)" icon)\.',
        clicks.menu,
    ),
    (r"Click on a (?P<label>.+)", clicks.shape),
    (r"How many (?P<label>.+)s are there\?", clicks.count_shapes),
    (r"Click the button that best describes the figure below\.", clicks.identify_shape),
    (r"Click on the grid coordinate \((?P<x>-?\d),(?P<y>-?\d)\)\.", clicks.grid_point),
    (r"Find and click on the center of the circle, then press submit\.", clicks.circle_center),
    (r"Click on the numbers in ascending order\.", clicks.ascending),
    (r"Find and pick the card with the greatest number, then press submit\.", clicks.greatest),
    (r"Buy the ticket with the (?P<label>\w+ (?:\w+ )?(?:cost|duration))\.", clicks.ticket),
    (r"Mark the numbers below as odd or even and press submit when done\.", clicks.odd_or_even),
    (r'For the user (?P<user>@\w+), click on the "(?P<label>.+)" button\.', clicks.social),
    (
        r'Click the "(?P<label>.+)" button on (?P<n>\d) posts? by (?P<user>@\w+) and then click Submit\.',
        clicks.social,
    ),
    (r"Order one of each item: (?P<names>.+)", clicks.order_food),
    (r"Order (?P<n>\d) items that are (?P<kind>\S+)", clicks.order_food),
    (r'Navigate through the file tree\..* named "(?P<label>.+)"\.', clicks.navigate_tree),
    (r'Enter "(?P<text>.+)" into the text field and press Submit\.', forms.enter_text),
    (r'Type "(?P<text>.+)" in all (?P<case>upper|lower) case letters .*', forms.enter_cased),
    (r'Enter the password "(?P<password>.+)" into both text fields .*', forms.enter_password),
    (
        r'Enter the username "(?P<name>.+)" and the password "(?P<password>.+)" into .* press login\.',
        forms.login,
    ),
    (r"Enter your own name as the username and your own password.*", forms.own_login),
    (r"Enter your own password into both text fields and press submit\.", forms.own_password),
    (r"Enter your own (?P<field>\w+) into the text field and press Submit\.", forms.own_field),
    (rf"Enter {_DATE} as the date and hit submit\.", forms.enter_date),
    (r"Enter (?P<hour>\d+):(?P<minute>\d\d) (?P<half>[AP]M) as the time .*", forms.enter_time),
    (rf"Select {_DATE} as the date and hit submit\.", forms.choose_date),
    (r"Focus into the textbox\.", forms.focus),
    (rf"Focus into the {_NTH} input textbox\.", forms.focus),
    (rf"Find the {_NTH} word in the paragraph, .*", forms.find_word),
    (r"Find the last word in the text area, .*", forms.last_word),
    (r"Solve the math problem .*", forms.arithmetic),
    (r"Solve for x .*", forms.algebra),
    (r"Type the text below into the text field and press Submit\.", forms.text_below),
    (r"Enter the value of (?P<label>.+) into the text field .*", forms.read_table),
    (r"Enter the value that corresponds with each label .*", forms.read_table_form),
    (
        r"Search for (?P<genre>.+) movies directed by (?P<director>.+) from year (?P<year>\d+)\.",
        forms.movie_search,
    ),
    (
        r"Check the (?P<radio>\d)\w\w radio button and enter the number \"(?P<text>.+)\" "
        r"into the (?P<box>\d)\w\w textbox\.",
        forms.nth_radio,
    ),
    (
        r'Choose (?P<option>.+) from the dropdown, then click the button labeled "(?P<label>.+)"\.',
        forms.dropdown,
    ),
    (
        r'Enter an item that starts with "(?P<start>.+?)"(?: and ends with "(?P<end>.+)")?\.',
        forms.autocomplete,
    ),
    (
        rf'Use the textbox to enter "(?P<text>.+)" and press "Search", .* click the {_NTH} search result\.',
        forms.search,
    ),
    (
        r"Find the email by (?P<name>\w+) and (?P<deed>click the \w+ icon to .*|"
        r'reply to them with the text "(?P<text>.+)"|forward that email to (?P<to>\w+))\.',
        forms.mail,
    ),
    (r".*\b(?:forward|[Ss]end|sent|wants|Give|waiting|Forward)\b.*", forms.mail_nl),
)
_COMPILED = tuple((re.compile(pattern, re.DOTALL), rule) for pattern, rule in RULES)

_WORDINGS = (
    "The task says {why}. I see {line}.",
    "I should {why}. The page has {line}.",
    "Next: {why}. That is {line}.",
    "To {why}, I use {line}.",
    "I look at {line}. The task wants me to {why}.",
)


def expert(
    goal: str,
    observation: str,
    user: Mapping[str, str],
    past: Sequence[str],
    rng: random.Random,
) -> tuple[str, str] | None:
    """The next step as (thought, tool call), None for a task or a page that no rule knows.

    ``past`` are the numbered calls made so far, as the agent's prompt lists them. The thought quotes the
    line of the element that the call acts on.
    """
    page = Page.read(observation, user, past)
    for told, rest in page.told() if goal == TOLD_GOAL else [(goal, page)]:
        for pattern, rule in _COMPILED:
            match = pattern.fullmatch(told)
            if match is None:
                continue
            try:
                move = rule(rest, match)
            except Lost:
                return None
            if move.tool == "click" and move.call in page.failed:
                move = by_key(move)
            return rng.choice(_WORDINGS).format(why=move.why, line=move.element.said), move.call
    return None


_MINIWOB = """
    ascending-numbers buy-ticket choose-date-easy choose-date-medium choose-list circle-center click-button
    click-button-sequence click-checkboxes click-checkboxes-transfer click-collapsible click-collapsible-2
    click-collapsible-2-nodelay click-collapsible-nodelay click-color click-dialog click-dialog-2 click-link click-menu-2
    click-option click-scroll-list click-shape click-tab click-tab-2 click-tab-2-easy click-tab-2-medium
    click-test click-test-2 click-test-transfer click-widget count-shape email-inbox
    email-inbox-delete email-inbox-forward email-inbox-forward-nl email-inbox-important email-inbox-noscroll
    email-inbox-reply email-inbox-star-reply enter-date enter-password enter-text enter-text-2 enter-text-dynamic
    enter-time find-greatest find-word focus-text focus-text-2 form-sequence-2 form-sequence-3 grid-coordinate
    identify-shape login-user login-user-popup multi-layouts multi-orderings navigate-tree odd-or-even order-food
    read-table read-table-2 scroll-text search-engine simple-algebra simple-arithmetic social-media social-media-some
    text-transform unicode-test use-autocomplete use-autocomplete-nodelay
"""
EXPERT_TASKS: tuple[str, ...] = (
    *(f"miniwob.{name}" for name in _MINIWOB.split()),
    *sorted(PROFILES),
)
"""Tasks that the experts solve within five steps, at least nine times in ten."""
