"""design.md lists this repository's folders, a line each."""

import re
from pathlib import Path

import pytest

from tests.docs import tree


@pytest.mark.parametrize("page", tree.PAGES, ids=lambda page: page.name)
def test_the_page_has_the_list_that_is_generated(page: Path) -> None:
    block = tree.BLOCK.search(page.read_text("utf-8"))
    assert block, f"{page.name} has no <!-- tree --> … <!-- /tree -->"
    assert block[0] == tree.tree(), "run `python -m tests.docs.tree`"


def test_every_folder_has_a_line() -> None:
    rows = tree.tree().splitlines()[2:-2]
    without = [row for row in rows if not re.match(r"\s*\S+\s+\S", row)]
    assert not without, "give its __init__.py a docstring, or name it in tests/docs/tree.py"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("What it does. And how.", "What it does."),
        ("Two lines\nof one sentence.\n\nMore.", "Two lines of one sentence."),
        ("See `a.b` of torch 2.13. `x` is next.", "See `a.b` of torch 2.13."),
    ],
)
def test_a_line_is_the_first_sentence(text: str, line: str) -> None:
    assert tree.sentence(text) == line
