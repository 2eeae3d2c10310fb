"""The workbook's diagrams as a browser drew them, beside the text that each was drawn from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.site.places import places
from tests.site.reader import Reader

FACTS = Path(__file__).with_name("drawn.js").read_text("utf-8")
WIDTHS = {390: 844, 1440: 900}
SCHEMES = ("light", "dark")
# Twice thirty diagrams to look at: CI does. A laptop sees that each page draws its own.
EACH = pytest.mark.parametrize(
    ("language", "width"),
    [
        pytest.param("es", 390, marks=pytest.mark.ci),
        pytest.param("en", 1440, marks=pytest.mark.ci),
        pytest.param("en", 390, marks=pytest.mark.ci),
        pytest.param("es", 1440, marks=pytest.mark.ci),
    ],
)


class Drawn(NamedTuple):
    """A diagram: its page, its text, and what drawn.js says of the picture."""

    page: str
    text: str
    facts: dict[str, Any]


Drawings = Callable[[str, int, str], list[Drawn]]


def look(browser: Any, served: str, language: str, width: int) -> dict[str, list[Drawn]]:
    """Open every page of a language that has diagrams; return them as each palette shows them."""
    size = {"width": width, "height": WIDTHS[width]}
    reader = Reader(browser, served, viewport=size)
    # What stays above the page while it scrolls would be what a look at a letter's paper meets.
    quiet = ".md-header, .md-top, .md-skip { display: none !important; }"
    seen: dict[str, list[Drawn]] = {scheme: [] for scheme in SCHEMES}
    for place in places():
        address, wanted = place.address, place.diagrams
        if not wanted or address.startswith("es/") is not (language == "es"):
            continue
        reader.page.emulate_media(color_scheme=SCHEMES[0])
        page = reader.read(address)
        page.add_style_tag(content=quiet)
        for scheme, drawings in seen.items():
            reader.painted(scheme)
            assert reader.drawn(scheme) == len(wanted), address
            elements = page.locator("div.mermaid").element_handles()
            for element, text in zip(elements, wanted, strict=True):
                drawings.append(Drawn(address, text, page.evaluate(FACTS, element)))
    reader.close()
    assert not reader.wrong, reader.wrong
    return seen
