"""A real browser: the machine's own chromium, driven by playwright, that asks nobody else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


def program() -> str | None:
    """Return where the browser is, or None."""
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def launched() -> Iterator[Any]:
    """Start the browser; both it and playwright must be there."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program(), args=QUIET)
        yield browser
        browser.close()
