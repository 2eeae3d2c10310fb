"""Finds and starts a real browser, the machine's own chromium, which asks no other host."""

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
