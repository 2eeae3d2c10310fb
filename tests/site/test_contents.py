"""A part of a page that can't be shown ends in a warning that names the page and the line."""

from __future__ import annotations

from pathlib import Path

from tests.notelab.scratch import Scratch
from tests.site.scratch_site import build, make_site

PAGE = """# Wrong

![a picture](assets/figures/shardng.svg)

<div class="figure" id="figure-memry">what it says</div>

A formula: $\\frac{1$.
"""


def test_a_misspelt_figure_or_formula_is_named_by_page_and_line(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    docs = make_site(scratch) / "docs"
    for name in ("wrong.md", "wrong.es.md"):
        (docs / name).write_text(PAGE)
    built = build(scratch, "--strict")
    assert built.returncode == 1
    assert "Traceback" not in built.stderr
    for page in ("wrong.md", "wrong.es.md"):
        for line, words in {
            3: "has no figure shardng",
            5: "no figure 'memry'",
            7: "formula",
        }.items():
            at = f"docs/{page}:{line}: "
            (warning,) = [text for text in built.stderr.splitlines() if at in text]
            assert words in warning
