"""A page of a real browser, which records the faults that occur while it is open."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.limits import LIMIT

TELEPHONE = 480  # px: as wide as the widest of them
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
WINDOW = {"width": 1280, "height": 720}
# A context and its free pages, by browser and settings.
_CONTEXTS: dict[tuple[Any, str], tuple[Any, list[Any]]] = {}


class Reader:
    """Reads pages of a served site; each fault that the browser reports is added to `wrong`.

    Readers of the same settings follow each other in one page of one browser context, and find
    there the files that were loaded, the scripts that were parsed and the page's process. A new
    page costs 2.5 times as much.

    Args:
        first_visit: the browser was never on this site.
        viewport: what the page is as wide and as high as, in px. One as narrow as a telephone is
            emulated as one: it is touched, and shows a page that is wider than it zoomed out.
        settings: of playwright's browser context.
    """

    def __init__(
        self,
        browser: Any,
        served: str,
        *,
        first_visit: bool = False,
        viewport: dict[str, int] | None = None,
        **settings: Any,
    ) -> None:
        if viewport and viewport["width"] <= TELEPHONE:
            settings |= {"is_mobile": True, "has_touch": True}
        self._is_mobile = bool(settings.get("is_mobile"))
        key = (browser, json.dumps(settings, sort_keys=True))
        contexts = {} if first_visit else _CONTEXTS
        if key not in contexts:
            contexts[key] = browser.new_context(**settings), []
        self._context, self._free = contexts[key]
        self._context.set_default_timeout(1000 * LIMIT)
        self._is_first_visit = first_visit
        self._viewport = viewport or WINDOW
        self._scheme = settings.get("color_scheme", "light")
        self.served = served
        self.wrong: list[str] = []
        self._open()

    def _open(self) -> None:
        self.page = self._free.pop() if self._free else self._context.new_page()
        self.page.set_viewport_size(self._viewport)
        self.page.emulate_media(media="null", color_scheme=self._scheme)
        for event in ("console", "pageerror", "request", "response"):
            self.page.on(event, getattr(self, f"_note_{event}"))

    def _note_pageerror(self, error: Any) -> None:
        self.wrong.append(f"error: {error}")

    def _note_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((self.served, "data:", "blob:")):
            self.wrong.append(f"asked another host: {request.url}")

    def _note_response(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status}: {response.url}")

    def close(self) -> None:
        """Leave the page to the next reader, without what it stored in the browser."""
        if self._is_first_visit:
            self._context.close()
            return
        if self.page.url.startswith(self.served):
            self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        for event in ("console", "pageerror", "request", "response"):
            self.page.remove_listener(event, getattr(self, f"_note_{event}"))
        self.page.unroute_all()
        self.page.mouse.move(0, 0)
        self.page.goto("about:blank")
        self._free.append(self.page)

    def forget(self) -> None:
        """Start again as a reader who opens the site for the first time."""
        self.close()
        self.wrong.clear()
        self._open()

    def resize(self, width: int, height: int) -> None:
        """Change the window's size, and let the page's scripts answer to it.

        Only a telephone's window may become as narrow as one.
        """
        assert self._is_mobile or width > TELEPHONE, "a telephone is emulated with is_mobile"
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate(TWO_FRAMES)

    def read(self, place: str) -> Any:
        self.page.goto(self.served + place, wait_until="load")
        return self.page

    def until(self, predicate: str, argument: Any = None) -> None:
        """Wait until a function in the page is true, for at most LIMIT seconds.

        Playwright's own `wait_for_function` evaluates within the page, whose policy forbids it.
        """
        for _ in range(20 * LIMIT):
            if self.page.evaluate(predicate, argument):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {predicate}")

    def wait_for_diagrams(self, scheme: str = "light") -> int:
        """Wait until the page's diagrams have a palette's colours; return their number.

        A kept drawing is in the page. Mermaid draws the others when one of them nears the window.
        """
        theme = {"light": "neutral", "dark": "dark"}[scheme]
        undrawn = self.page.locator("div.mermaid:not(.drawn)")
        if undrawn.count():
            undrawn.first.scroll_into_view_if_needed()
            self.until("theme => document.documentElement.dataset.diagrams === theme", theme)
        return int(self.page.locator("div.mermaid svg").count())

    def use_scheme(self, scheme: str) -> None:
        """Set the system's colour scheme, and wait until the whole page has its colours."""
        self.page.emulate_media(color_scheme=scheme)
        palette = {"light": "default", "dark": "slate"}[scheme]
        self.until("palette => document.body.dataset.mdColorScheme === palette", palette)
        if self.page.locator("div.mermaid").count():
            self.wait_for_diagrams(scheme)
        self.until("() => document.getAnimations().length === 0")  # colours fade over

    def search(self, words: str) -> list[str]:
        """Write words into the page's search, all at once; return the addresses of the results.

        The list would be made anew with each letter, and be empty meanwhile.
        """
        self.page.locator("[data-md-component=search-query]").click()
        self.until(  # the index is there: Material then says what to do
            "() => !/nitializ|nicializ/.test("
            "document.querySelector('.md-search-result__meta').textContent)"
        )
        self.page.keyboard.insert_text(words)
        self.page.keyboard.press("End")
        results = self.page.locator(".md-search-result__link")
        results.first.wait_for()
        return [str(address) for address in results.evaluate_all("all => all.map(a => a.href)")]


OpenReader = Callable[..., Reader]
