"""Every letter of every diagram can be read: on a telephone and on a desk, in both palettes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from tests.site.drawing.drawn import EACH, SCHEMES, Drawings
from tests.site.reader import Reader

SMALLEST = 11.0  # px on the screen, whatever the drawing was shrunk by
CONTRAST = 4.5  # WCAG 2's level AA for text
SYNTHESIS = "experiments/35-reading-notes/synthesis/"


def overlap(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Return whether two texts overlap by more than the rims of their boxes."""
    across = min(first["right"], second["right"]) - max(first["left"], second["left"])
    down = min(first["bottom"], second["bottom"]) - max(first["top"], second["top"])
    return across > 2 and down > 4


@pytest.mark.parametrize("scheme", SCHEMES)
@EACH
def test_every_letter_is_large_whole_and_stands_out(
    drawings: Drawings, language: str, width: int, scheme: str
) -> None:
    looked_at = 0
    for page, _, facts in drawings(language, width, scheme):
        assert facts["width"] <= facts["room"], (page, facts["kind"])  # none of it off the screen
        for letter in facts["letters"]:
            which = (page, letter["text"])
            assert letter["height"] >= SMALLEST, (which, letter["height"])
            assert letter["cut"] <= 1, (which, letter["cut"])
            assert letter["contrast"] >= CONTRAST, (which, letter["contrast"])
            looked_at += 1
    assert looked_at > 100


@EACH
def test_no_words_of_a_diagram_lie_over_others(
    drawings: Drawings, language: str, width: int
) -> None:
    for page, _, facts in drawings(language, width, "light"):
        letters = [letter for letter in facts["letters"] if facts["kind"] != "sequence"]
        for first, second in combinations(letters, 2):
            assert not overlap(first, second), (page, first["text"], second["text"])


@pytest.fixture
def pocket(browser: Any, served: str) -> Any:
    """A window that is made narrower than any telephone while the page is open."""
    reader = Reader(browser, served, viewport={"width": 1440, "height": 900}, is_mobile=True)
    yield reader
    reader.close()


def test_in_a_window_made_narrow_a_drawing_scrolls_before_it_is_too_small(
    pocket: Reader,
) -> None:
    page = pocket.read(SYNTHESIS)
    pocket.wait_for_diagrams()
    pocket.resize(240, 600)
    pocket.until(
        """() => {
          const drawings = [...document.querySelectorAll("div.mermaid svg")];
          const scrolls = drawings.map(({ parentElement }) =>
            parentElement.scrollWidth > parentElement.clientWidth && parentElement.tabIndex === 0);
          const sizes = drawings.map((svg) => svg.getScreenCTM().a *
            Math.min(...[...svg.querySelectorAll("text")].map((text) =>
              parseFloat(getComputedStyle(text).fontSize))));
          return String(scrolls) === "false,true" && sizes.every((size) => size > 10.9);
        }"""
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 240
