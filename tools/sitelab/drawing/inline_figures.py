"""Figures of our own stand in the page itself, so that they follow its palette.

A picture that is loaded knows nothing of the palette that a reader chose. What a page's HTML may
hold says `allowed_html`; these come later and from the repository alone: docs/assets/figures/.
"""

import re
from html import escape
from pathlib import Path

from markupsafe import Markup

from sitelab.pages.tree import Element

FOLDER = "assets/figures"
_SOURCE = re.compile(rf".*{FOLDER}/([\w-]+)(?:\.es)?\.svg")


def embed_pictures(page: Element, docs: Path, language: str) -> list[str]:
    """Put a page's figures into it; return the names of those that docs/assets/figures/ lacks.

    Each is named by what stood there for the picture. One that is missing stays a picture.

    Args:
        page: the page's content.
        docs: the folder of the site's sources.
        language: of the page; a figure has a file for each, as a page does.
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
