"""Chromium for one worker process, and pages that can reach nothing but MiniWoB++'s own files.

No socket is opened for the pages: every request stops at a route handler, which answers it from the
folder of pages or refuses and remembers it. What no route sees (WebSockets, DNS, WebRTC) ends at a proxy that
does not exist.
"""

from __future__ import annotations

import importlib.util
import mimetypes
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Error,
    Page,
    Playwright,
    Route,
    sync_playwright,
)

from envs.base import WorldError

ORIGIN = "http://pages.invalid"  # a name that can never resolve (RFC 2606), and no secure context
BASE_URL = f"{ORIGIN}/miniwob/"
EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-smooth-scrolling",  # a scroll would go on into the next observation
    "--proxy-server=http://127.0.0.1:1",
    "--proxy-bypass-list=<-loopback>",  # without it, addresses of this machine would bypass the proxy
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)
VIEWPORT = {"width": 332, "height": 214}  # BrowserGym's for MiniWoB++
_BY_ID = """{
  query: (root, id) => window.__arlas.find(id),
  queryAll: (root, id) => [window.__arlas.find(id)].filter(Boolean),
}"""
PAGE_SCRIPT = Path(__file__).with_name("page.js")
MAX_REFUSED = 50  # requests remembered an episode
MAX_REQUEST_CHARS = 2_000


def find_chromium(configured: str | None = None) -> str:
    """The path of a Chromium: the configured one, ``$ARLAS_CHROMIUM``, or one on the PATH.

    Raises `WorldError` with the remedy.
    """
    for source, name in (
        ("env.chromium", configured),
        ("ARLAS_CHROMIUM", os.getenv("ARLAS_CHROMIUM")),
    ):
        if name:
            found = shutil.which(name)
            if found is None:
                raise WorldError(f"{source}={name} is not an executable file")
            return found
    for name in EXECUTABLES:
        found = shutil.which(name)
        if found is not None:
            return found
    raise WorldError(
        "env=web needs Chromium, and none of "
        f"{', '.join(EXECUTABLES)} is on the PATH: apt-get install chromium-headless-shell, "
        "or name one by env.chromium or ARLAS_CHROMIUM"
    )


def find_pages() -> Path:
    """The folder that the package ``miniwob`` ships its pages in. Raises `WorldError`."""
    spec = importlib.util.find_spec("miniwob")  # found, not imported: the package wants selenium
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / "html" / "miniwob").is_dir():
            return Path(folder).resolve() / "html"
    raise WorldError('env=web needs the package miniwob with its pages: pip install -e ".[web]"')


@cache
def _file(root: Path, path: str) -> tuple[bytes, str] | None:
    """A file below ``root`` and its type, None if there is no such file."""
    file = (root / path.lstrip("/")).resolve()
    if not file.is_relative_to(root) or not file.is_file():
        return None
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return file.read_bytes(), kind + charset


class _Chromium:
    """The one browser of this process. Started when needed, closed with its last page."""

    def __init__(self) -> None:
        self.users = 0
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    def context(self, executable: str, tries: int = 2) -> BrowserContext:
        """A fresh context, in a new browser if the old one has died. Raises `WorldError`."""
        for attempt in range(1, tries + 1):
            try:
                if self._browser is None or not self._browser.is_connected():
                    self._browser = None
                    self._browser = self._start().chromium.launch(
                        executable_path=executable,
                        args=list(FLAGS),
                        headless=True,
                        handle_sigint=False,
                        handle_sigterm=False,
                        handle_sighup=False,
                    )
                context = self._browser.new_context(viewport=VIEWPORT, accept_downloads=False)
                self.users += 1
                return context
            except Error as error:
                self._browser = None
                if attempt == tries:
                    raise WorldError(
                        f"{executable} did not start in {tries} tries: {first_line(error)}"
                    ) from None
        raise AssertionError

    def _start(self) -> Playwright:
        if self._playwright is None:
            try:
                self._playwright = sync_playwright().start()
                self._playwright.selectors.register("bid", _BY_ID)
            except Error as error:
                raise WorldError(
                    f"{first_line(error)}; inside asyncio, use the pool: WebConfig().open()"
                ) from None
        return self._playwright

    def release(self, context: BrowserContext) -> None:
        self.users -= 1
        try:
            context.close()
            if self.users == 0 and self._browser is not None:
                self._browser.close()
        except Error:
            pass  # it had died
        if self.users == 0:
            self._browser = None
            if self._playwright is not None:
                self._playwright.stop()
                self._playwright = None


CHROMIUM = _Chromium()


class Tab:
    """A page of its own context. ``refused`` lists the requests to elsewhere, as evidence."""

    def __init__(self, executable: str) -> None:
        self._root = find_pages()
        self.refused: list[str] = []
        self._context = CHROMIUM.context(executable)
        self._context.set_default_timeout(5_000)
        self._context.set_default_navigation_timeout(15_000)
        self._context.add_init_script(path=PAGE_SCRIPT)
        self._context.route("**/*", self._answer)
        self.page: Page = self._context.new_page()

    def _answer(self, route: Route) -> None:
        request = route.request
        url = urlsplit(request.url)
        if f"{url.scheme}://{url.netloc}" == ORIGIN:
            found = _file(self._root, unquote(url.path))
            if found is None:
                route.fulfill(status=204)
            else:
                route.fulfill(body=found[0], content_type=found[1])
            return
        self.note(f"{request.method} {request.url}", request.post_data_buffer)
        route.fulfill(status=204)  # the page stays; an abort would replace it by an error page

    def note(self, what: str, body: bytes | None = None) -> None:
        """Remembers a refused request."""
        if len(self.refused) < MAX_REFUSED:
            text = f"{what} {body.decode(errors='replace')}" if body else what
            self.refused.append(text[:MAX_REQUEST_CHARS])

    def close_popups(self) -> None:
        """Closes every other page of the context; the route has seen where they wanted to go."""
        for page in self._context.pages:
            if page != self.page:
                self.note("WINDOW")
                page.close()

    def close(self) -> None:
        CHROMIUM.release(self._context)


def first_line(error: BaseException) -> str:
    """The first line of a Playwright error, without its call log."""
    lines: list[Any] = str(error).strip().splitlines()
    return str(lines[0])[:300] if lines else type(error).__name__
