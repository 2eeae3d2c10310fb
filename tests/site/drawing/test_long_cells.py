"""A cell of a sentence is marked: on a telephone its column needs some width."""

from __future__ import annotations

import pytest

from sitelab.pages.line_breaks import mark_long_cells
from tests.site.parsed import apply_change

WORDS = "a step so small that its arithmetic vanishes: Python, autograd"


@pytest.mark.parametrize("style", ["", ' style="text-align: right;"'])
def test_a_cell_is_marked_for_the_length_of_its_text_not_of_its_tags(style: str) -> None:
    html = apply_change(f"<td{style}>{WORDS}</td>", mark_long_cells)
    assert html == f'<td{style} data-long="">{WORDS}</td>'
    short = f'<td{style}><a href="{WORDS}">{WORDS[:20]}</a></td>'
    assert apply_change(short, mark_long_cells) == short
