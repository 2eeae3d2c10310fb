"""Takes pictures of the site in a real browser: `make screenshots`.

`python -m pages.pictures.screenshots FOLDER` makes one of each view below, light and dark, wide and
narrow; without a FOLDER, those that the README shows, into docs/assets/screenshots/.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from pages.blocks import ROOT
from pages.pictures.browser import launch_browser, serving

SHOWN = ROOT / "docs/assets/screenshots"
DRAWN = {"light": "neutral", "dark": "dark"}  # by scheme, mermaid's theme
WIDTHS = {1440: 900, 390: 844}


class View(NamedTuple):
    """A page, and the actions before its picture is taken."""

    address: str
    prepare: Callable[[Any], None] = lambda page: None


def _open_card(page: Any) -> None:
    page.locator("a.citation[data-card]").nth(2).focus()
    page.locator(".citation-card").wait_for()


def _ask(page: Any) -> None:
    page.locator("details.question summary").first.click()
    page.locator("details.question").last.scroll_into_view_if_needed()


def _timeline(page: Any) -> None:
    below_the_header = "heading => scrollTo(0, heading.offsetTop - 60)"
    page.locator("h2").nth(1).evaluate(below_the_header)
    page.locator(".md-header__title--active").wait_for()


VIEWS = {
    "front": View(""),
    "note": View("experiments/35-reading-notes/megatron-tp-layers/", _open_card),
    "synthesis": View("experiments/35-reading-notes/synthesis/", _timeline),
    "theory": View("theory/01-collectives/"),
    "recall": View("theory/01-collectives/", _ask),
    "results": View("experiments/35-allreduce-costs/RESULTS/"),
}
# None with an open citation card: the repository holds no text of those that it cites.
README = (("synthesis", "light", 1440), ("recall", "dark", 1440))


def take_picture(browser: Any, served: str, picture: tuple[str, str, int], folder: Path) -> Path:
    """Take a picture of a view in a scheme and a width; return its path."""
    name, scheme, width = picture
    size = {"width": width, "height": WIDTHS[width]}
    narrow = width < 480
    page = browser.new_page(viewport=size, color_scheme=scheme, is_mobile=narrow, has_touch=narrow)
    view = VIEWS[name]
    page.goto(served + view.address, wait_until="load")
    undrawn = page.locator("div.mermaid:not(.drawn)")
    if undrawn.count():  # mermaid draws one that nears the window
        undrawn.first.scroll_into_view_if_needed()
        page.locator(f"html[data-diagrams={DRAWN[scheme]}]").wait_for(state="attached")
    view.prepare(page)
    file = folder / f"{name}-{scheme}-{width}.png"
    page.screenshot(path=file, animations="disabled")
    page.close()
    with Image.open(file) as image:  # a page of text has few colours: a third of the bytes
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    return file


def main(arguments: list[str]) -> int:
    """Build the site, take the pictures and print their paths."""
    folder = Path(arguments[0]) if arguments else SHOWN
    wanted = [(name, scheme, width) for name in VIEWS for scheme in DRAWN for width in WIDTHS]
    if not arguments:
        wanted = list(README)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as site:
        build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", site]
        subprocess.run(build, cwd=ROOT, check=True)
        with serving(Path(site)) as served, launch_browser() as browser:
            for picture in wanted:
                file = take_picture(browser, served, picture, folder)
                print(f"{file} ({file.stat().st_size / 1e3:.0f} kB)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
