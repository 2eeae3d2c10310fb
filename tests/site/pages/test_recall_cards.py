"""Recall cards hide their answer until asked: by mouse, by keyboard, by touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.site.pages.test_every_page import AXE
from tests.site.reader import Reader

PAGE = "theory/01-collectives/"


@pytest.fixture(scope="module")
def touched(browser: Any, served: str) -> Iterator[Reader]:
    reader = Reader(browser, served, viewport={"width": 1440, "height": 900}, has_touch=True)
    yield reader
    reader.close()


@pytest.fixture(params=["", pytest.param("es/", marks=pytest.mark.ci)])
def card(request: pytest.FixtureRequest, touched: Reader) -> Iterator[Any]:
    """The first card of a theory page, in each language, on a screen that takes touch too."""
    yield touched.read(request.param + PAGE).locator("details.question").first
    assert not touched.wrong
    touched.forget()


ASKED: dict[str, Callable[[Any], None]] = {
    "mouse": lambda question: question.click(),
    "touch": lambda question: question.tap(),
    "Enter": lambda question: question.press("Enter"),
    "Space": lambda question: question.press("Space"),
}


def test_a_card_shows_its_answer_when_asked_and_hides_it_again(card: Any) -> None:
    question = card.locator("summary")
    answer = card.locator("> :not(summary)").first
    assert question.is_visible()
    assert not answer.is_visible()
    for way, ask in ASKED.items():
        ask(question)
        assert answer.is_visible(), way
        ask(question)
        assert not answer.is_visible(), way


@pytest.mark.ci
def test_a_card_can_be_reached_with_the_tab_key(card: Any) -> None:
    page = card.page
    card.evaluate("card => card.previousElementSibling.setAttribute('tabindex', '-1')")
    card.evaluate("card => card.previousElementSibling.focus()")
    focused = "card => card.firstElementChild === document.activeElement"
    page.keyboard.press("Tab")
    if not card.evaluate(focused):  # the heading's own permalink comes first
        page.keyboard.press("Tab")
    assert card.evaluate(focused)


@pytest.mark.ci
def test_an_answer_is_tied_to_a_line_that_opens(card: Any) -> None:
    card.locator("summary").click()
    card.locator("a.citation[data-card]").first.focus()
    card.page.locator(".citation-card").wait_for()
    box = card.page.locator(".citation-card").bounding_box()
    assert box is not None
    assert box["height"] > 40


LEFT = [
    pytest.param(settings, marks=pytest.mark.ci)
    for settings in (("", 390), ("", 1440), ("es/", 1440))
]


@pytest.fixture(params=[("es/", 390), *LEFT], scope="module")
def screen(
    request: pytest.FixtureRequest, browser: Any, served: str
) -> Iterator[tuple[Reader, str]]:
    language, width = request.param
    reader = Reader(browser, served, viewport={"width": width, "height": 844})
    yield reader, language
    reader.close()


@pytest.fixture
def reader(screen: tuple[Reader, str]) -> Iterator[Reader]:
    reader, language = screen
    reader.read(language + PAGE)
    yield reader
    assert not reader.wrong
    reader.forget()


def answer(reader: Reader, card: Any, typed: str) -> str:
    """Type a number into an open card; return the card's reply."""
    card.locator("input").fill(typed)
    card.locator("input").press("Enter")
    return str(card.locator(".recall-verdict").inner_text())


WORDS = {
    "en": ("Right.", "Not that.", "again in"),
    "es": ("Correcto.", "No es eso.", "otra vez en"),
}


def test_a_typed_number_is_checked_before_the_answer_shows(reader: Reader) -> None:
    right, wrong, later = WORDS[reader.page.locator("html").get_attribute("lang") or ""]
    card = reader.page.locator("details.question[data-recall$='#gathered']")
    body = card.locator("> p:not(.recall-verdict)").first
    card.locator("summary").click()
    assert card.locator("input").is_visible() and not body.is_visible()
    assert "GiB" in answer(reader, card, "a lot") and not body.is_visible()
    for typed, reply in {
        "7 MB": wrong,
        "7 MiB": right,
        "7.34e6": right,
        "7 340 032 B": right,
    }.items():
        assert answer(reader, card, typed) == reply, typed
        assert body.is_visible()
        card.locator("summary").click()
        card.locator("summary").click()  # opened anew, it asks anew
        assert not body.is_visible()
    assert later not in card.locator("summary").inner_text()  # it was wrong once: due again


def test_a_grade_is_remembered_until_the_card_is_due(reader: Reader) -> None:
    later = WORDS[reader.page.locator("html").get_attribute("lang") or ""][2]
    name = "details.question[data-recall$='#latency']"
    reader.page.locator(f"{name} summary").click()
    reader.page.locator(f"{name} .recall-grades button").nth(2).click()
    reader.page.reload(wait_until="load")
    assert f"{later} 3" in reader.page.locator(f"{name} .recall-when").inner_text()
    reader.page.evaluate("""name => {
        const kept = JSON.parse(localStorage.getItem("shardbook.recall"));
        for (const one of Object.values(kept)) one.evidence = "other";
        localStorage.setItem("shardbook.recall", JSON.stringify(kept));
    }""")
    reader.page.reload(wait_until="load")
    due = reader.page.locator(f"{name} .recall-when").inner_text()
    assert due.startswith(("stale", "caducada"))


@pytest.mark.ci
def test_a_history_that_is_none_is_set_aside_and_the_cards_work(reader: Reader) -> None:
    reader.page.evaluate("localStorage.setItem('shardbook.recall', '[torn')")
    reader.page.reload(wait_until="load")
    card = reader.page.locator("details.question").first
    card.locator("summary").click()
    card.locator(".recall-grades button").nth(3).click()
    assert "7" in card.locator(".recall-when").inner_text()
    assert reader.page.evaluate("localStorage.getItem('shardbook.recall.corrupt')") == "[torn"


@pytest.mark.ci
def test_an_open_card_can_be_read_and_fits_the_screen(reader: Reader, axe: str) -> None:
    page = reader.page
    for name in ("latency", "gathered"):
        page.locator(f"details.question[data-recall$='#{name}'] summary").click()
    card = page.locator("details.question[data-recall$='#gathered']")
    answer(reader, card, "7 GB")
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        reader.use_scheme(scheme)
        assert page.evaluate(AXE, [{"include": ["details.question[open]"]}, {}]) == [], scheme
    for button in page.locator("details[open] .recall-grades button").all():
        box = button.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= page.viewport_size["width"]
