"""A real browser: the machine's own chromium, driven by playwright, that asks nobody else."""

from __future__ import annotations

import shutil
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
def program() -> str | None:
    """Return where the browser is, the machine's or else playwright's own, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    with sync_playwright() as play:
        own = play.chromium.executable_path
    return own if Path(own).exists() else None


@contextmanager
def launched() -> Iterator[Any]:
    """Start the browser, which must be there."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program(), args=QUIET)
        yield browser
        browser.close()
