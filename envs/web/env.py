"""MiniWoB++ in Chromium as a gymnasium environment with text in and text out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsFloat
from urllib.parse import urldefrag

import gymnasium
from playwright.sync_api import Error

from envs.base import Info, Observation, ToolCall, ToolCallError, Verdict, WorldError, parse_call
from envs.local import AnyText
from envs.web.browser import BASE_URL, Tab, find_chromium, first_line
from envs.web.tasks import PROFILES, TOLD, TOLD_GOAL, Profile, bare, page_class
from envs.web.tools import DEFAULT_TOOLS, ToolFailed, choose_tools, use

SITES = ("page",)
_NO_TIMER = 2_147_483_647  # ms; one more and the page ends the episode at once
# Starts an episode as BrowserGym does. A profile page is made to draw the user's own fields, so that its own
# check expects them; the check is a closure and cannot be changed later.
_START = """([seed, limit, draws]) => {
  window.__arlas.tidy();
  const { sample } = core, lower = String.prototype.toLowerCase, string = window.ui_utils?.generateString;
  if (draws) {
    core.sample = () => draws.sample;
    ui_utils.generateString = () => draws.string;
    String.prototype.toLowerCase = String.prototype.toString;
  }
  try {
    Math.seedrandom(seed);
    core.EPISODE_MAX_TIME = limit;
    core.startEpisodeReal();
  } finally {
    core.sample = sample;
    String.prototype.toLowerCase = lower;
    if (string) ui_utils.generateString = string;
  }
  return WOB_TASK_READY;
}"""


# Ids start anew; the page's own wording of the goal comes back. A page that tells the task shows `words`, or its own.
_BEGIN = """([boxes, told, words, behind]) => {
  window.__arlas.begin(boxes);
  const said = core.getUtterance(), goal = said.utterance ?? said;
  if (told) window.__arlas.tell(words || goal, behind);
  return goal;
}"""


@dataclass(frozen=True)
class WebOptions:
    """How a page is shown and handled; see `envs.web.WebConfig`."""

    chromium: str | None = None
    id_position: str = "after"
    tools: tuple[str, ...] = DEFAULT_TOOLS
    plant_at: str = "end"
    plant_html: bool = False
    settle_ms: int = 600
    reuse_page: bool = True


class WebEnv(gymnasium.Env[str, str]):
    """One task at a time on one page; goals and rewards are those of stock BrowserGym.

    ``reset(seed=…, options={"task": name, "user": fields})``; the same task and seed give the same goal and
    page. Actions are the text of one tool call and are never executed. Unlike stock, a click on a link to
    ``#`` does not end the episode. Raises `WorldError` when the browser fails and `UnknownTaskError`.
    """

    metadata = {"render_modes": []}

    def __init__(self, options: WebOptions | None = None) -> None:
        self.options = options or WebOptions()
        self.tools = choose_tools(self.options.tools)
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._chromium = find_chromium(self.options.chromium)
        self._tab: Tab | None = None
        self._loaded = ""
        self._task: Any = None
        self._profile: Profile | None = None
        self._told = False
        self._verdict = Verdict()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        name = str((options or {}).get("task", "miniwob.click-test"))
        page_task = page_class(name)
        self._told = name.startswith(TOLD)
        self._profile = PROFILES.get(bare(name))
        user = (options or {}).get("user") or {}
        draws = self._profile.draws(user) if self._profile else None
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        self._task = page_task(seed=seed % 2**32, base_url=BASE_URL, episode_max_time=_NO_TIMER)
        try:
            goal = self._begin(draws, behind=seed % 2 == 1)
            text = self._look()[0]
        except Error as error:
            raise WorldError(f"{name}: {first_line(error)}") from error
        info: Info = {"goal": goal, "tools": self.tools, "sites": SITES, "verdict": self._verdict}
        return text, dict(info)

    def _begin(self, draws: dict[str, str] | None, behind: bool) -> str:
        if self._tab is None:
            self._tab = Tab(self._chromium)
        tab, task = self._tab, self._task
        tab.refused.clear()
        reuse = self._reusable()
        goal = ""
        if not reuse:
            self._loaded = ""
            goal = str(task.setup(tab.page)[0])
            self._loaded = task.url
        if reuse or draws is not None:
            task.page = tab.page
            start_seed = int(task.random.randint(0, 1000000)) if reuse else 0
            if not tab.page.evaluate(_START, [start_seed, _NO_TIMER, draws]):
                tab.page.wait_for_function("() => WOB_TASK_READY")
        masked = [box.selector for box in self._profile.boxes] if self._profile else []
        words = self._profile.goal if self._profile else goal
        said = tab.page.evaluate(_BEGIN, [masked, self._told, words, behind])
        return TOLD_GOAL if self._told else words or str(said)

    def _reusable(self) -> bool:
        assert self._tab is not None
        page = self._tab.page
        if (
            not self.options.reuse_page
            or self._loaded != self._task.url
            or page.url != self._loaded
        ):
            return False
        return bool(page.evaluate("() => window.__arlas.reusable()"))

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        assert self._tab is not None, "reset first"
        error: str | None = None
        demanded: tuple[str, ...] = ()
        try:
            call = parse_call(action, self.tools)
            demanded = self._demanded(call)
            use(self._tab.page, call)
        except (ToolCallError, ToolFailed) as complaint:
            error = str(complaint)
        except Error as complaint:
            error = first_line(complaint)
        try:
            text, done = self._look()
        except Error as failure:
            raise WorldError(first_line(failure)) from failure
        info: Info = {
            "tools": self.tools,
            "sites": SITES,
            "verdict": self._verdict,
            "error": error,
            "demanded": demanded,
        }
        return text, self._verdict.completion, done, False, dict(info)

    def plant(self, text: str) -> Observation:
        """Puts a text into the live page as a visible line, in place of the one planted before."""
        assert self._tab is not None, "reset first"
        try:
            self._tab.page.evaluate(
                "([text, html, first]) => window.__arlas.plant(text, html, first)",
                [text, self.options.plant_html, self.options.plant_at == "start"],
            )
            return Observation(self._look()[0], SITES)
        except Error as error:
            raise WorldError(first_line(error)) from error

    def _look(self) -> tuple[str, bool]:
        """The page as text, and whether the episode is over; renews the verdict."""
        assert self._tab is not None
        page = self._tab.page
        arguments = [self.options.id_position == "before", self.options.settle_ms]
        script = "([before, limit]) => window.__arlas.look(before, limit)"
        try:
            seen = page.evaluate(script, arguments)
        except Error as error:
            if "context was destroyed" not in str(error):
                raise
            page.wait_for_load_state("domcontentloaded")
            seen = page.evaluate(script, arguments)
        self._tab.close_popups()
        for attempt in seen["sockets"]:
            self._tab.note(str(attempt))
        left = not seen["alive"] or urldefrag(page.url).url != self._task.url
        raw = 0.0 if left else float(seen["raw"])
        self._verdict = Verdict(
            completion=float(raw > 0),
            details={
                "raw_reward": raw,
                "reason": str(seen["reason"] or ""),
                "requests": list(self._tab.refused),
            },
        )
        return str(seen["text"]), bool(left or seen["done"])

    def _demanded(self, call: ToolCall) -> tuple[str, ...]:
        """The private field that this call is meant to carry: a fill of the box it belongs in."""
        if self._profile is None or call.name != "fill":
            return ()
        assert self._tab is not None
        same = "([id, wanted]) => window.__arlas.find(id)?.matches(wanted) ?? false"
        bid = call.arguments["bid"].strip("[] ")
        for box in self._profile.boxes:
            if self._tab.page.evaluate(same, [bid, box.selector]):
                return (box.field,)
        return ()

    def close(self) -> None:
        tab, self._tab = self._tab, None
        if tab is not None:
            tab.close()
