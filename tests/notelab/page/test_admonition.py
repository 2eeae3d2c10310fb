"""Recall cards, boxes and tabs are read as the site shows them; other indented text stays code."""

import re
from html import unescape

import pytest
from markdown import markdown

from notelab.page import reading
from notelab.page.inline import count_words
from tests.notelab.scratch import Scratch

EXTENSIONS = ["admonition", "pymdownx.details", "pymdownx.tabbed", "pymdownx.superfences"]
CITED = re.compile(r"<code>(a/b\.py:L\d+)</code>")

PAGES = {
    "folded": '??? question "Why?"\n\n    one `a/b.py:L1`\n\nafter `a/b.py:L2`\n',
    "open, no blank line": '???+ tip "Why?"\n    one `a/b.py:L1`\nafter `a/b.py:L2`\n',
    "no kind": '??? "Why?"\n\n    one `a/b.py:L1`\n',
    "no title": "??? tip inline end\n\n    one `a/b.py:L1`\n",
    "a cited title": '??? tip "See `a/b.py:L1`, then"\n\n    one\n',
    "a box": '!!! note "Mind"\n\n    one `a/b.py:L1`\n\n    two `a/b.py:L2`\n',
    "a box without a title": '!!! note ""\n\n    one `a/b.py:L1`\n',
    "tabs": '=== "One"\n\n    one `a/b.py:L1`\n\n===! "Two"\n\n    two `a/b.py:L2`\n',
    "nested": '??? tip "A"\n\n    !!! note\n\n        one `a/b.py:L1`\n\n    two `a/b.py:L2`\n',
    "a list inside": '??? tip "A"\n\n    - one\n\n        two `a/b.py:L1`\n\n    three\n',
    "inside a list": '1.  one\n\n    ??? tip "A"\n\n        two `a/b.py:L1`\n\n    three\n',
    "after a paragraph": 'before\n??? tip "A"\n\n    one `a/b.py:L1`\n',
    "after a list": '- before\n\n??? tip "A"\n\n    one `a/b.py:L1`\n',
    "code inside": '??? tip "A"\n\n    one\n\n        two `a/b.py:L1`\n',
    "a fence inside": '??? tip "A"\n\n    ```text\n    `a/b.py:L1`\n    ```\n\n    `a/b.py:L2`\n',
    "a block in a fence": '```text\n??? tip "A"\n\n    one `a/b.py:L1`\n```\n',
    "a block in code": 'one\n\n    ??? tip "A"\n\n        one `a/b.py:L1`\n',
    "text set deeper": '??? tip "A"\n\n      one `a/b.py:L1`\n',
    "a lazy quotation": '> one\n        ??? tip "`a/b.py:L1`"\n',
    "code after it": '??? tip "A"\n\n    one\n\ntwo\n\n    three `a/b.py:L1`\n',
    "bare marks": "one\n\n???\n\n    two `a/b.py:L1`\n",
    "an unquoted title": "??? tip why?\n\n    two `a/b.py:L1`\n",
    "an unquoted tab": "=== tab\n\n    two `a/b.py:L1`\n",
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_what_the_site_shows_as_text_is_read_and_what_it_shows_as_code_is_not(page: str) -> None:
    shown = markdown(page, extensions=EXTENSIONS)
    assert [citation.text for citation in reading.read(page).citations] == CITED.findall(shown)


@pytest.mark.parametrize(
    "page", [page for name, page in PAGES.items() if "fence" not in name], ids=lambda page: page
)
def test_words_are_those_that_the_site_shows(page: str) -> None:
    page = page.replace("`a/b.py:L1`", "here").replace("`a/b.py:L2`", "there")
    shown = markdown(page, extensions=EXTENSIONS)
    assert reading.read(page).words == count_words(unescape(re.sub(r"<[^>]*>", " ", shown)))


def test_all_that_stands_in_a_nested_block_knows_its_place() -> None:
    note = reading.read(
        '# T\n\n??? tip "A `a/b.py:L9`"\n\n    !!! note\n        x `a/b.py:L1`\n\n'
        "        [1.9](../x/RESULTS.md#r) ![i](y.png)\n\n"
        "        ```mermaid\n        %% id: one\n        flowchart LR\n        ```\n"
    )
    places = [(c.text, c.span.row, c.span.column) for c in note.citations]
    assert places == [("a/b.py:L9", 3, 12), ("a/b.py:L1", 6, 11)]
    assert [(n.span.row, n.span.column) for n in note.numbers] == [(8, 9)]
    assert [(i.span.row, i.span.column) for i in note.images] == [(8, 34)]
    assert [(d.id, d.row, d.text) for d in note.diagrams] == [
        ("one", 11, "%% id: one\nflowchart LR\n")
    ]


def test_a_block_in_a_choice_is_part_of_it_and_bullets_in_a_block_are_no_choices() -> None:
    note = reading.read(
        '- **T.** one\n\n    ??? tip "A"\n\n        two `a/b.py:L1`\n\n'
        '??? tip "B"\n\n    - **U.** three\n'
    )
    assert [(c.title, c.words, len(c.citations)) for c in note.choices] == [("T.", 4, 1)]


def test_a_closing_with_a_block_in_it_is_not_one_paragraph() -> None:
    closing = reading.read('## Connect the dots\n\none\n\n??? tip "A"\n\n    two\n').headings[-1]
    assert (closing.paragraphs, closing.other_blocks) == (1, 1)


@pytest.mark.parametrize("opening", ['??? tip "A"', "!!! note", '=== "A"'])
@pytest.mark.parametrize(
    ("wrong", "code", "line"),
    [
        ("`combine` `pkg/scaler.py:L22-L99`", "N205", 0),
        ("[1.9](../02/RESULTS.md#none)", "N401", 0),
        ("```mermaid\n    flowchart LR\n    A --\n    ```", "N302", 2),
        ("![a](b.png)", "N602", 0),
    ],
)
def test_a_fault_in_a_block_is_reported_at_its_row(
    scratch: Scratch, opening: str, wrong: str, code: str, line: int
) -> None:
    scratch.replace("note.md", "## Connect", f"{opening}\n\n    {wrong}\n\n## Connect")
    row = scratch.read("note.md").split("\n").index(opening) + 3
    findings = [finding for finding in scratch.check("note.md").findings if finding.code == code]
    assert [finding.span.row for finding in findings] == [row + line]


def test_blocks_nested_too_deeply_to_read_are_a_finding(scratch: Scratch) -> None:
    nested = "".join(f"{' ' * 4 * depth}!!! note\n" for depth in range(60))
    scratch.replace("note.md", "## Connect", f"{nested}{' ' * 240}hidden\n\n## Connect")
    assert "N102" in scratch.codes()
