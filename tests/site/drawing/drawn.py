"""Collects the workbook's diagrams as a browser drew them, together with their source texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.site.places import list_places
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


class Drawing(NamedTuple):
    """A diagram: its page, its text, and the facts that drawn.js reads from the picture."""

    page: str
    text: str
    facts: dict[str, Any]


Drawings = Callable[[str, int, str], list[Drawing]]


def collect_drawings(
    browser: Any, served: str, language: str, width: int
) -> dict[str, list[Drawing]]:
    """Open every page of a language that has diagrams; return the diagrams by palette."""
    size = {"width": width, "height": WIDTHS[width]}
    reader = Reader(browser, served, viewport=size)
    # What stays above the page while it scrolls would be what a look at a letter's paper meets.
    quiet = ".md-header, .md-top, .md-skip { display: none !important; }"
    seen: dict[str, list[Drawing]] = {scheme: [] for scheme in SCHEMES}
    for place in list_places():
        address, wanted = place.address, place.diagrams
        if not wanted or address.startswith("es/") is not (language == "es"):
            continue
        reader.page.emulate_media(color_scheme=SCHEMES[0])
        page = reader.read(address)
        page.add_style_tag(content=quiet)
        for scheme, drawings in seen.items():
            reader.use_scheme(scheme)
            assert reader.wait_for_diagrams(scheme) == len(wanted), address
            elements = page.locator("div.mermaid").element_handles()
            for element, text in zip(elements, wanted, strict=True):
                drawings.append(Drawing(address, text, page.evaluate(FACTS, element)))
    reader.close()
    assert not reader.wrong, reader.wrong
    return seen
