"""The machine's own chromium, which asks no other host, and a server of the built site for it."""

from __future__ import annotations

import functools
import http.server
import io
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

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
