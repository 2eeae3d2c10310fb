"""A page's passes have an order; a page is made again when its input has changed, and else not."""

from __future__ import annotations

import os
import re
from itertools import combinations
from pathlib import Path

import pytest

from notelab.recall.cards import Card
from sitelab.contents import PASSES, Contents, Draft, Pass, Source
from sitelab.drawing import diagrams
from sitelab.katex import Formulas
from sitelab.pages.allowed_html import clean_html
from sitelab.pages.tree import parse
from tests.site.test_live_citations import CITED

ROOT = Path(__file__).parents[3]
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>{}</text></svg>'
FIGURE = '<p><img alt="A" src="../assets/figures/a.svg"></p>'

FORMULAS = Formulas()
CITATION = "megatron/core/--a.py:L2-L3, which is long"
# Every pass finds something on this page.
PAGE = rf"""
<div class="mermaid">flowchart LR</div>
<details class="question"><summary>a</summary><p>10 000 MB</p></details>
<div class="figure" id="figure-zigzag">10 000</div>
<p><img alt="A" src="../assets/figures/a.svg">
<img alt="B" src="figures/b-light.svg#gh-light-mode-only">
<code>make --quiet</code>, <span class="arithmatex">\(10 000 x\)</span>. (n − 1)/n</p>
<table><tbody>
<tr><td>A cell that is long with its citation <code>{CITATION}</code>.</td>
<td>A cell that is long with its formula <span class="arithmatex">\(a + b + c + d\)</span></td>
<td style="text-align: right">10 000</td></tr></tbody></table>
"""


def make(passes: tuple[Pass, ...], root: Path) -> str:
    """Return a page's HTML after some passes."""
    card = Card("a#b", "a", "10 000 MB", (4, 4), None)
    source = Source(PAGE, "a/", "en", {CITATION: CITED}, [card], judged=True)
    page = parse(clean_html(PAGE, judged=True))
    draft = Draft(page, source, root, FORMULAS.draw, "mark")
    for each in passes:
        each.change(draft)
    return page.html()


def test_two_passes_can_change_places_unless_the_second_names_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawings = {diagrams.find_key("flowchart LR"): {"words": "10 000 MB", "svg": "<svg></svg>"}}
    monkeypatch.setattr(diagrams, "read_drawings", lambda: drawings)
    figures = tmp_path / "docs/assets/figures"
    figures.mkdir(parents=True)
    (figures / "a.svg").write_text(SVG)
    unchanged = make((), tmp_path)
    for each in PASSES:
        assert make((each,), tmp_path) != unchanged, f"{each.name} finds something"
    for first, second in combinations(PASSES, 2):
        same = make((first, second), tmp_path) == make((second, first), tmp_path)
        assert same is (first.name not in second.after), (first.name, second.name)


def test_a_figure_that_changed_is_shown_and_an_unchanged_page_is_kept(tmp_path: Path) -> None:
    figure = tmp_path / "docs/assets/figures/a.svg"
    figure.parent.mkdir(parents=True)
    figure.write_text(SVG.format("first"))
    contents, source = Contents(), Source(FIGURE, "a/", "en", {}, [], judged=False)
    contents.begin_build(tmp_path)
    first = contents.get(source, tmp_path)
    assert "first" in first.html
    contents.begin_build(tmp_path)
    assert contents.get(source, tmp_path) is first
    figure.write_text(SVG.format("second"))
    os.utime(figure, ns=(figure.stat().st_mtime_ns + 1,) * 2)  # whatever the clock's step
    contents.begin_build(tmp_path)
    assert "second" in contents.get(source, tmp_path).html


@pytest.mark.parametrize("page", ["site.md", "site.es.md"])
def test_the_reference_lists_the_passes_in_order(page: str) -> None:
    table = (ROOT / "docs/reference" / page).read_text().split("passes -->")[1]
    rows = [re.findall("`(.*?)`", row) for row in table.splitlines() if row.startswith("| `")]
    assert rows == [[each.name, *each.after] for each in PASSES]


def test_a_pass_runs_after_those_that_it_names() -> None:
    names = [each.name for each in PASSES]
    for place, each in enumerate(PASSES):
        assert set(each.after) <= set(names[:place]), each.name
