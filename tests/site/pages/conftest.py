"""Two small workbooks, each built once: one with all that is left out, one with many faults."""

from __future__ import annotations

import pytest

from tests.notelab.scratch import Scratch
from tests.site.pages.test_published_files import surround
from tests.site.scratch_site import BuiltSite, add_local_lab, build

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
def strict_site(tmp_path_factory: pytest.TempPathFactory) -> BuiltSite:
    """A site with a reader's own lab, local results, and files that run beside a note."""
    scratch = Scratch(tmp_path_factory.mktemp("strict"))
    surround(add_local_lab(scratch) / "experiments/01-scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDBOOK_EDIT", EDIT_BASE)
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
