"""Takes pictures of the site in a real browser: `make screenshots`.

`python -m pages.screenshots FOLDER` makes one of each view below, light and dark, wide and narrow;
without a FOLDER, those that the README shows, into docs/assets/screenshots/. The browser is the
machine's own chromium, which asks no other host; the site's tests use it too.
"""

from __future__ import annotations

import functools
import http.server
import io
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import sync_playwright

from pages.blocks import ROOT

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
    from PIL import Image

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


HOW = "apt-get install chromium, or .venv/bin/python -m playwright install chromium"

# A fresh profile that asks nobody else for anything, as CI's machine runs it.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@cache
def find_browser() -> str | None:
    """Return the path of the machine's browser, or of playwright's, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    with sync_playwright() as play:
        bundled = play.chromium.executable_path
    return bundled if Path(bundled).exists() else None


@contextmanager
def launch_browser() -> Iterator[Any]:
    """Start the browser; one must be installed."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_browser(), args=QUIET)
        yield browser
        browser.close()


class _Silent(http.server.SimpleHTTPRequestHandler):
    """Serves files, or the content that replaces a file, and logs nothing."""

    def __init__(self, *args: Any, instead: dict[str, bytes], **settings: Any) -> None:
        self._instead = instead
        super().__init__(*args, **settings)

    def send_head(self) -> Any:
        """Send the headers; return the open content."""
        content = self._instead.get(self.path)
        if content is None:
            return super().send_head()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(self.path))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def serving(folder: Path, instead: dict[str, bytes] | None = None) -> Iterator[str]:
    """Serve `folder` inside a with statement; yield its address, which ends in a slash.

    Args:
        instead: by address, from its first slash on, what to give in place of the file.
    """
    handler = functools.partial(_Silent, directory=str(folder), instead=instead or {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


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
