"""The workbook's mermaid diagrams, drawn as SVG before a reader comes; keeps what is drawn already.

Mermaid itself draws them in chromium, which is needed only for a diagram that has no drawing yet.
"""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from notelab.mermaid import BUNDLE
from notelab.page import reading
from pages.blocks import ROOT, PageError
from sitelab.drawing.diagrams import DRAW, DRAWINGS, find_key, read_drawings
from sitelab.drawing.svg import clean_svg
from sitelab.pages.workbook_pages import find_files

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_PAGE = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><body></body>'


def list_sources() -> dict[str, str]:
    """Return the sources of the diagrams on the workbook's pages, in order, by their keys."""
    pages = [*find_files(ROOT).values(), *(ROOT / "docs").rglob("*.md")]
    texts = (path.read_text("utf-8") for path in sorted(pages) if path.suffix == ".md")
    sources = (diagram.text for text in texts for diagram in reading.read(text).diagrams)
    return {find_key(source): source for source in sources}


def draw(sources: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the drawings of diagrams, by key: what each says in words, and its SVG.

    Raises:
        PageError: there is no chromium, or mermaid can't draw a diagram.
    """
    from playwright.sync_api import Error, sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    drawn = {}
    try:
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            page.route("**", lambda route: route.abort())
            page.set_content(_PAGE)
            page.add_script_tag(content=BUNDLE.read_text("utf-8"))
            script = DRAW.read_text("utf-8")
            for key, source in sources.items():
                answer = page.evaluate(script, source)
                svg = clean_svg(answer["svg"].encode()).decode().partition("?>")[2].strip()
                drawn[key] = {"words": answer["words"], "svg": svg}
    except Error as error:
        hint = (
            "needs chromium: `apt-get install chromium`, or `python -m playwright install chromium`"
        )
        raise PageError(f"a diagram can't be drawn: {error.message}; drawing {hint}") from error
    return drawn


def render() -> Iterator[tuple[Path, str]]:
    """Yield the file of drawings: one for each diagram, drawn now if it is missing."""
    sources, kept = list_sources(), read_drawings()
    missing = {key: source for key, source in sources.items() if key not in kept}
    drawings = kept | (draw(missing) if missing else {})
    write = partial(json.dumps, ensure_ascii=False, indent=1)
    yield DRAWINGS, f"{write({key: drawings[key] for key in sources})}\n"
