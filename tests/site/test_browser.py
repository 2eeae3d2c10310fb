"""The built site in a real browser: every page quiet and drawn; citations, search and languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notelab import reading
from tests.site.test_build import sources

NOTE = "experiments/35-reading-notes/megatron-tp-layers/"
SYNTHESIS = "experiments/35-reading-notes/synthesis/"


class Reader:
    """A page of a browser that remembers what went wrong while it was open."""

    def __init__(self, browser: Any, served: str, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.served = served
        self.wrong: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.served, "data:", "blob:")):
            self.wrong.append(f"asked another host: {request.url}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status}: {response.url}")

    def read(self, place: str) -> Any:
        self.page.goto(self.served + place, wait_until="load")
        return self.page

    def drawn(self) -> int:
        """Wait for the page's diagrams; return how many stand there as pictures."""
        self.page.wait_for_function("document.documentElement.dataset.diagrams !== undefined")
        return int(self.page.locator("div.mermaid svg").count())


@pytest.fixture
def wide(browser: Any, served: str) -> Iterator[Reader]:
    reader = Reader(browser, served, viewport={"width": 1440, "height": 900})
    yield reader
    reader.context.close()


@pytest.fixture
def narrow(browser: Any, served: str) -> Iterator[Reader]:
    reader = Reader(
        browser,
        served,
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
        color_scheme="dark",
    )
    yield reader
    reader.context.close()


def places() -> list[tuple[str, int]]:
    """Every page's address below the site's root, and how many diagrams its source has."""
    found = []
    for uri, source in sources().items():
        spanish = uri.name.endswith(".es.md")
        name = uri.name.removesuffix(".md").removesuffix(".es")
        folder = "" if uri.parent == Path() else f"{uri.parent.as_posix()}/"
        place = folder if name == "index" else f"{folder}{name}/"
        diagrams = len(reading.read(source.read_text()).diagrams)
        found.append((f"es/{place}" if spanish else place, diagrams))
    return sorted(found)


def test_every_page_is_quiet_drawn_and_fits_a_telephone(narrow: Reader) -> None:
    for place, diagrams in places():
        page = narrow.read(place)
        if diagrams:
            assert narrow.drawn() == diagrams, place
            assert page.locator("div.mermaid[data-error]").count() == 0, place
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, place
        assert not narrow.wrong, (place, narrow.wrong)


def test_a_mouse_opens_a_card_and_leaving_closes_it(wide: Reader) -> None:
    page = wide.read(NOTE)
    link = page.locator("a.citation[data-card]").nth(3)
    link.hover()
    card = page.locator(".citation-card")
    card.wait_for()
    assert "line" in card.inner_text()
    assert card.locator(".citation-line").count() >= 1
    page.mouse.move(5, 5)
    card.wait_for(state="detached")
    assert not wide.wrong


def test_the_keyboard_opens_a_card_reaches_into_it_and_escapes(wide: Reader) -> None:
    page = wide.read(f"es/{NOTE}")
    link = page.locator("a.citation[data-card]").first
    link.focus()
    card = page.locator(".citation-card")
    card.wait_for()
    assert "línea" in card.inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate(
        "document.querySelector('.citation-card').contains(document.activeElement)"
    )
    page.keyboard.press("Escape")
    card.wait_for(state="detached")
    assert page.evaluate("document.activeElement.matches('a.citation')")
    assert not wide.wrong


def test_a_tap_opens_a_card_before_it_follows_the_permalink(narrow: Reader) -> None:
    page = narrow.read(NOTE)
    page.locator("a.citation[data-card]").first.tap()
    page.locator(".citation-card").wait_for()
    assert page.url == narrow.served + NOTE
    box = page.locator(".citation-card").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert not narrow.wrong


def test_the_language_switch_stays_on_the_page(wide: Reader) -> None:
    page = wide.read(NOTE)
    page.locator(".md-select button").hover()
    page.locator('.md-select a[hreflang="es"]').click()
    page.wait_for_url(f"**/es/{NOTE}")
    assert page.locator("html").get_attribute("lang") == "es"


@pytest.mark.parametrize(("language", "word"), [("", "citation"), ("es/", "cita")])
def test_search_finds_a_word_in_its_own_language(wide: Reader, language: str, word: str) -> None:
    page = wide.read(language)
    page.locator("[data-md-component=search-query]").click()
    page.wait_for_function(  # the index is there: Material then says what to do
        "!/nitializ|nicializ/.test(document.querySelector('.md-search-result__meta').textContent)"
    )
    page.keyboard.type(word)
    results = page.locator(".md-search-result__link")
    results.first.wait_for()
    found = [results.nth(i).evaluate("a => a.href") for i in range(results.count())]
    assert found
    for address in found:
        assert address.startswith(wide.served + language), address
        assert language or not address.startswith(wide.served + "es/"), address
    assert not wide.wrong


def test_diagrams_are_drawn_again_when_the_palette_changes(wide: Reader) -> None:
    page = wide.read(SYNTHESIS)
    assert wide.drawn() == 2
    before = page.locator("div.mermaid").first.inner_html()
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "before => document.querySelector('div.mermaid').innerHTML !== before", arg=before
    )
    assert page.locator("div.mermaid svg").count() == 2
