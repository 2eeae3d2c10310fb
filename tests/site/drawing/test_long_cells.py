"""On a telephone a column of sentences is wide enough to read; a table scrolls all the same."""

from __future__ import annotations

import pytest

from sitelab.pages.line_breaks import mark_long_cells
from tests.site.parsed import apply_change
from tests.site.reader import OpenReader

WORDS = "a step so small that its arithmetic vanishes: Python, autograd"
WIDTHS = """all => all.filter(cell => cell.checkVisibility() && cell.innerText.length > 60)
  .map(cell => cell.offsetWidth)"""


@pytest.mark.parametrize("style", ["", ' style="text-align: right;"'])
def test_a_cell_is_marked_for_the_length_of_its_text_not_of_its_tags(style: str) -> None:
    html = apply_change(f"<td{style}>{WORDS}</td>", mark_long_cells)
    assert html == f'<td{style} data-long="">{WORDS}</td>'
    short = f'<td{style}><a href="{WORDS}">{WORDS[:20]}</a></td>'
    assert apply_change(short, mark_long_cells) == short


@pytest.mark.parametrize("address", ["labs/02-allreduce-costs/", "es/reference/gpus/"])
def test_a_telephone_gives_a_column_of_sentences_some_width(
    open_reader: OpenReader, address: str
) -> None:
    reader = open_reader(viewport={"width": 390, "height": 844})
    widths = reader.read(address).locator("article td").evaluate_all(WIDTHS)
    assert len(widths) > 3 and min(widths) >= 180
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390
