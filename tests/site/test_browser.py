"""The built site in a real browser: citation and recall cards, search, languages, palettes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from tests.site.reader import OpenReader, Reader

NOTE = "experiments/35-reading-notes/megatron-tp-layers/"
SYNTHESIS = "experiments/35-reading-notes/synthesis/"


@pytest.fixture(scope="module")
def laptop(browser: Any, served: str) -> Iterator[Reader]:
    reader = Reader(browser, served, viewport={"width": 1440, "height": 900})
    yield reader
    reader.close()


@pytest.fixture
def wide(laptop: Reader) -> Iterator[Reader]:
    yield laptop
    laptop.forget()


@pytest.fixture
def narrow(open_reader: OpenReader) -> Reader:
    return open_reader(viewport={"width": 390, "height": 844})


def test_a_card_opens_by_mouse_and_in_the_other_language_by_keyboard(wide: Reader) -> None:
    page = wide.read(NOTE)
    page.locator("a.citation[data-card]").nth(3).hover()
    card = page.locator(".citation-card")
    card.wait_for()
    assert "line" in card.inner_text()
    assert card.locator(".citation-line").count() >= 1
    page.mouse.move(5, 5)
    card.wait_for(state="detached")
    page.locator(".md-select button").hover()
    page.locator('.md-select a[hreflang="es"]').click()
    page.wait_for_url(f"**/es/{NOTE}")
    assert page.locator("html").get_attribute("lang") == "es"
    page.locator("a.citation[data-card]").first.focus()
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
    page.goto(narrow.served + "theory/04-pipelines-and-the-grid/")
    page.locator(".joined-end > a.citation[data-card]:visible").first.tap()  # it doesn't break
    cut = "card => card.scrollWidth - card.clientWidth"
    assert page.locator(".citation-card").evaluate(cut) == 0
    assert not narrow.wrong


def test_the_page_and_its_diagrams_follow_the_systems_palette(wide: Reader) -> None:
    page = wide.read(SYNTHESIS)
    wide.use_scheme("light")
    colour = "box => getComputedStyle(box).fill"
    box = page.locator("div.mermaid .own rect").first
    before = box.evaluate(colour)
    wide.use_scheme("dark")
    assert page.locator("div.mermaid svg").count() == 2
    assert box.evaluate(colour) != before
    assert not wide.wrong


@pytest.mark.parametrize(
    ("language", "choices"),
    [
        pytest.param("", ["Always light", "Always dark", "As the system is"], marks=pytest.mark.ci),
        ("es/", ["Siempre claro", "Siempre oscuro", "Como el sistema"]),
    ],
)
def test_a_reader_may_choose_a_palette_and_keeps_it(
    wide: Reader, language: str, choices: list[str]
) -> None:
    page = wide.read(language)
    for choice, scheme in zip(choices, ["default", "slate", "default"], strict=True):
        page.locator(f"label[title='{choice}']:visible").click()
        wide.until("scheme => document.body.dataset.mdColorScheme === scheme", scheme)
        page.reload(wait_until="load")
        assert page.evaluate("document.body.dataset.mdColorScheme") == scheme


@pytest.mark.parametrize(
    ("language", "place", "word"),
    [
        pytest.param("", "", "citation", marks=pytest.mark.ci),
        ("es/", "", "cita"),
        pytest.param("es/", "labs/03-annotated-reading/", "cita", marks=pytest.mark.ci),
    ],
)
def test_a_first_load_is_half_a_megabyte_at_most_and_a_search_loads_the_index_of_its_language(
    browser: Any, searched: str, language: str, place: str, word: str
) -> None:
    reader = Reader(browser, searched, first_visit=True, viewport={"width": 1440, "height": 900})
    answers: list[Any] = []
    # Playwright wants a function that it can mark, which a built-in method is not.
    reader.page.on("response", lambda response: answers.append(response))  # noqa: PLW0108
    reader.read(language + place)
    reader.page.wait_for_load_state("networkidle")
    bodies = [answer.body() for answer in answers if answer.url.startswith(searched)]
    assert sum(len(gzip.compress(body)) for body in bodies) <= 500_000
    assert not [answer for answer in answers if "search_index" in answer.url]  # most of a page
    addresses = reader.search(word)
    assert addresses
    assert len([answer for answer in answers if "search_index" in answer.url]) == 1
    for address in addresses:
        assert address.startswith(searched + language), address
        assert language or not address.startswith(searched + "es/"), address
    assert not reader.wrong  # nor was another host asked
    reader.close()
