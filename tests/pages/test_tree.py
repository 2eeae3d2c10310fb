"""Every folder has a line, the first sentence of what describes it."""

import re

import pytest

from pages import tree


def test_every_folder_has_a_line() -> None:
    rows = tree.tree().splitlines()[1:-1]
    without = [row for row in rows if not re.match(r"\s*\S+\s+\S", row)]
    assert not without, "give its __init__.py a docstring, or name it in tools/pages/tree.py"


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
