"""Writes the workbook's own SVG figures into the page, so that they follow the page's palette.

A picture that the browser loads by itself doesn't know the palette that a reader chose.
The bench's plots stay pictures, of which a telephone gets the narrow drawing.
`allowed_html` allows no SVG in a page; these are added after it, only from docs/assets/figures/.
"""

import re
from html import escape
from pathlib import Path

from markupsafe import Markup

from sitelab.pages.tree import Element

FOLDER = "assets/figures"
_SOURCE = re.compile(rf".*{FOLDER}/([\w-]+)(?:\.es)?\.svg")

_PLOT = re.compile(r"(.*figures/[\w-]+)-(light|dark)\.svg#gh-\2-mode-only")


def offer_narrow_plots(page: Element) -> None:
    """Let a telephone load the narrow drawing of each of the bench's plots."""

    def offer(image: Element) -> list[Element | str] | None:
        match = image.tag == "img" and _PLOT.fullmatch(image.attributes.get("src", ""))
        if not match:
            return None
        narrow = {"media": "(max-width: 44.98em)", "srcset": f"{match[1]}-narrow-{match[2]}.svg"}
        return [Element("picture", {}, [Element("source", narrow), image])]

    page.replace(offer)


def embed_pictures(page: Element, docs: Path, language: str) -> list[str]:
    """Replace a page's pictures by figures; return the names that docs/assets/figures/ lacks.

    A figure's label is the picture's alternative text. A picture without a figure is not changed.

    Args:
        page: the page's content.
        docs: the folder of the site's sources.
        language: of the page; a figure has a file for each language.
    """
    missing: list[str] = []

    def embed(image: Element) -> list[Element | str] | None:
        match = image.tag == "img" and _SOURCE.fullmatch(image.attributes.get("src", ""))
        if not match:
            return None
        suffix = "" if language == "en" else f".{language}"
        file = docs / FOLDER / f"{match[1]}{suffix}.svg"
        if not file.is_file():
            missing.append(match[1])
            return [image]
        alt = escape(image.attributes.get("alt", ""))
        name = f'role="img" aria-label="{alt}" data-search-exclude="1"'
        svg = file.read_text("utf-8").strip().replace("<svg", f"<svg {name}", 1)
        return [Markup(svg)]  # noqa: S704  (the repository's own)

    page.replace(embed)
    return missing
