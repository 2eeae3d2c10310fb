"""Recall cards hide their answer until asked: by mouse, by keyboard, by touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.site.reader import Reader

PAGE = "theory/01-collectives/"


@pytest.fixture(params=["", "es/"])
def card(request: pytest.FixtureRequest, browser: Any, served: str) -> Iterator[Any]:
    """The first card of a theory page, in each language, on a screen that takes touch too."""
    reader = Reader(browser, served, viewport={"width": 1440, "height": 900}, has_touch=True)
    yield reader.read(request.param + PAGE).locator("details.question").first
    assert not reader.wrong
    reader.context.close()


ASKED: dict[str, Callable[[Any], None]] = {
    "mouse": lambda question: question.click(),
    "touch": lambda question: question.tap(),
    "Enter": lambda question: question.press("Enter"),
    "Space": lambda question: question.press("Space"),
}


@pytest.mark.parametrize("way", ASKED)
def test_a_card_shows_its_answer_when_asked_and_hides_it_again(card: Any, way: str) -> None:
    question = card.locator("summary")
    answer = card.locator("> :not(summary)").first
    assert question.is_visible()
    assert not answer.is_visible()
    ASKED[way](question)
    assert answer.is_visible()
    ASKED[way](question)
    assert not answer.is_visible()


def test_a_card_can_be_reached_with_the_tab_key(card: Any) -> None:
    page = card.page
    card.evaluate("card => card.previousElementSibling.setAttribute('tabindex', '-1')")
    card.evaluate("card => card.previousElementSibling.focus()")
    focused = "card => card.firstElementChild === document.activeElement"
    page.keyboard.press("Tab")
    if not card.evaluate(focused):  # the heading's own permalink comes first
        page.keyboard.press("Tab")
    assert card.evaluate(focused)


def test_an_answer_is_tied_to_a_line_that_opens(card: Any) -> None:
    card.locator("summary").click()
    card.locator("a.citation[data-card]").first.focus()
    card.page.locator(".citation-card").wait_for()
    box = card.page.locator(".citation-card").bounding_box()
    assert box is not None
    assert box["height"] > 40
