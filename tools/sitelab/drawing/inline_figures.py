"""Figures of our own stand in the page itself, so that they follow its palette.

A picture that is loaded knows nothing of the palette that a reader chose. What a page's HTML may
hold says `allowed_html`; these come later and from the repository alone: docs/assets/figures/.
"""

import re
from pathlib import Path

FOLDER = "assets/figures"
_IMAGE = re.compile(rf'<img\b[^>]*\bsrc="[^"]*{FOLDER}/([\w-]+)(?:\.es)?\.svg"[^>]*>')
_ALT = re.compile(r'\balt="([^"]*)"')


def drawn(html: str, docs: Path, language: str) -> str:
    """Return a page's HTML with its figures in it, named by what stood there for the picture.

    Args:
        html: of the page's content.
        docs: the folder of the site's sources.
        language: of the page; a figure has a file for each, as a page does.
    """

    def inlined(match: re.Match[str]) -> str:
        suffix = "" if language == "en" else f".{language}"
        svg = (docs / FOLDER / f"{match[1]}{suffix}.svg").read_text("utf-8")
        alt = _ALT.search(match[0])
        name = f'role="img" aria-label="{alt[1] if alt else ""}" data-search-exclude="1"'
        return svg.strip().replace("<svg", f"<svg {name}", 1)

    return _IMAGE.sub(inlined, html)
