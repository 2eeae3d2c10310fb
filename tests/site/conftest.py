"""The built site, served, a real browser to read it with, and two small workbooks' sites."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from filelock import FileLock

from pages.screenshots import HOW, find_browser, launch_browser, serving
from tests.notelab.scratch import Scratch
from tests.running import run_program
from tests.site.drawing.drawn import Drawing, Drawings, collect_drawings
from tests.site.pages.test_published_files import surround
from tests.site.reader import OpenReader, Reader
from tests.site.scratch_site import BuiltSite, add_local_lab, build

REPOSITORY = Path(__file__).parents[2]
# Cards, search, languages and palettes; a page of each kind; what a hostile note may not do.
BROWSED_BY_MAKE_TEST = (
    "test_browser.py", "test_every_page.py", "test_hostile_forgery.py", "test_hostile_note.py",
)  # fmt: skip

# Where pages can be edited, for the workbook that is built.
EDIT_BASE = "https://example.org/someone/book/edit/trunk/"
WRONG = """---
sections: {no-such-section: [mistake]}
---

# Wrong

![a picture](assets/figures/shardng.svg)

<div class="figure" id="figure-memry">what it says</div>

A formula: $\\frac{1$.
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built strictly, once for all of xdist's processes.

    `.ci/run` names one that `make site` has built.
    """
    if built_before := os.environ.get("SHARDBOOK_SITE"):
        return Path(built_before)
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder, half = root / "site", root / "half-a-site"
    with FileLock(root / "site.lock"):
        if folder.exists():
            return folder
        built = run_program(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(half)],
            cwd=REPOSITORY,
        )
        assert built.returncode == 0, built.stderr
        half.rename(folder)
    return folder


@pytest.fixture(scope="session")
def searched(site: Path) -> Iterator[str]:
    """The site's address on this machine."""
    with serving(site) as address:
        yield address


@pytest.fixture(scope="session")
def served(site: Path) -> Iterator[str]:
    """The site's address, with empty search indexes.

    Each page loads and builds the search index, which takes as long as the rest of the page.
    """
    empty = {}
    for index in site.rglob("search_index.json"):
        of = json.loads(index.read_text("utf-8")) | {"docs": []}
        empty[f"/{index.relative_to(site).as_posix()}"] = json.dumps(of).encode()
    with serving(site, empty) as address:
        yield address


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that need a browser: `-m browser` runs all of them, `make test` a few files'."""
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker("browser")
        if item.path.name not in BROWSED_BY_MAKE_TEST:
            item.add_marker("ci")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Report all skips for want of a browser at one place, as one line of the summary."""
    report = yield
    if report.skipped and HOW in str(report.longrepr):
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright; without a browser, the tests are skipped with one line."""
    if find_browser() is None:
        pytest.skip(f"no chromium here; to run these: {HOW}")
    with launch_browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def reader(browser: Any, served: str) -> Iterator[Reader]:
    """A telephone's reader."""
    reader = Reader(browser, served, viewport={"width": 390, "height": 844})
    yield reader
    reader.close()


@pytest.fixture
def open_reader(browser: Any, served: str) -> Iterator[OpenReader]:
    """Opens readers of the site with given settings; none of them may meet a fault."""
    readers: list[Reader] = []

    def open_another(**settings: Any) -> Reader:
        readers.append(Reader(browser, served, **settings))
        return readers[-1]

    yield open_another
    for reader in readers:
        assert not reader.wrong
        reader.close()


@pytest.fixture(scope="session")
def drawings(browser: Any, served: str) -> Drawings:
    """Return the drawn diagrams of a language, at a width, in a palette; each is drawn once."""

    @cache
    def seen(language: str, width: int) -> dict[str, list[Drawing]]:
        return collect_drawings(browser, served, language, width)

    return lambda language, width, scheme: seen(language, width)[scheme]


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core's script, which runs in a page."""
    (folder,) = axe_playwright_python.__path__
    return (Path(folder) / "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="session")
def strict_site(tmp_path_factory: pytest.TempPathFactory) -> BuiltSite:
    """A site with a reader's own lab, local results, and files that run beside a note.

    Its plain tree is in tree/.
    """
    scratch = Scratch(tmp_path_factory.mktemp("strict"))
    surround(add_local_lab(scratch) / "experiments/01-scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDBOOK_EDIT", EDIT_BASE)
        patch.setenv("SHARDBOOK_PLAIN", str(scratch.root / "tree"))
        built = build(scratch, "--strict")
    assert built.returncode == 0, built.stderr
    return BuiltSite(scratch, built.stderr)


@pytest.fixture(scope="session")
def faulty_site(tmp_path_factory: pytest.TempPathFactory) -> BuiltSite:
    """A site with parts that can't be shown, and two pages without their Spanish."""
    scratch = Scratch(tmp_path_factory.mktemp("faulty"))
    docs = add_local_lab(scratch) / "docs"
    for name in ("wrong.md", "wrong.es.md"):
        (docs / name).write_text(WRONG)
    (scratch.lab / "more.md").write_text("# More\n")
    (scratch.lab / "note.es.md").unlink()
    built = build(scratch, "--strict")
    assert built.returncode == 1
    return BuiltSite(scratch, built.stderr)
