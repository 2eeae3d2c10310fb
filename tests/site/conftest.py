"""The built site, served, and a real browser to read it with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.site.chromium import launched, program
from tests.site.serving import serving

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="session")
def served(site: Path) -> Iterator[str]:
    """The site's address on this machine."""
    with serving(site) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright; a laptop that lacks either skips, CI installs both."""
    pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
    if program() is None:
        pytest.skip("no chromium on this machine")
    with launched() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core's script, to run in a page; a laptop that lacks it skips, CI installs it."""
    package = pytest.importorskip("axe_playwright_python", reason="pip install '.[browser]'")
    (folder,) = package.__path__
    return (Path(folder) / "axe.min.js").read_text("utf-8")
