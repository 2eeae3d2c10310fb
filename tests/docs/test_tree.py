"""The tree of design.md is this repository's, a line per folder and per file."""

import re
from pathlib import Path

import pytest

from tests.docs import tree


@pytest.mark.parametrize("page", tree.PAGES, ids=lambda page: page.name)
def test_the_page_has_the_tree_that_is_generated(page: Path) -> None:
    found = tree.BLOCK.search(page.read_text("utf-8"))
    assert found, (
        f"{page.name} has no place for the tree, between <!-- tree: … --> and <!-- /tree -->"
    )
    assert found[0] == tree.tree(), "run `python -m tests.docs.tree`"


def test_every_folder_and_file_has_a_line() -> None:
    rows = tree.tree().splitlines()[2:-2]
    silent = [row for row in rows if not re.match(r"\s*\S+\s+\S", row)]
    assert not silent, "begin each with a docstring or comment, or name it in tests/docs/tree.py"


def test_no_line_is_cut_off_in_tools() -> None:
    held = [path for path in tree.tracked() if path.parts[0] == "tools" and path.suffix == ".py"]
    long = {str(path): tree.of_file(path) for path in held if len(tree.of_file(path)) > tree.WIDTH}
    assert not long, f"say it in {tree.WIDTH} characters"


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
