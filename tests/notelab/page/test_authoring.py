"""What an honest author writes in ordinary Markdown, and must not be told off for."""

import pytest

from notelab.page import reading
from tests.notelab.scratch import Scratch


@pytest.mark.parametrize(
    "opening",
    ["**T.** a", "**T**: a", "__T__ a", "***T.*** a", "*__T__* a", "[**T**](x) a", "**`T`.** a"],
)
def test_a_title_is_bold_however_it_is_written(opening: str) -> None:
    assert reading.read(f"- {opening}\n").choices[0].title.rstrip(".") == "T"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n", "\r\n"), ("- **", "-   **"), ("- **", "-\t**"),
        ("# A scratch note\n", "A scratch note\n==============\n"),
        ("## Connect the dots\n", "Connect the dots\n----------------\n"),
        ("## Connect the dots", "## Connect the dots ##"),
        ("`pkg/scaler.py:L14-L15`", "*`pkg/scaler.py:L14-L15`*"),
        ("`pkg/scaler.py:L14-L15`", "([`pkg/scaler.py:L14-L15`](https://example.invalid))"),
        ("`pkg/scaler.py:L14-L15`", "`` pkg/scaler.py:L14-L15 ``"), ("`uses`", "**`uses`**"),
        ("`uses`", "`self.uses += 1`"), ("- **Two", "\n- **Two"), ("first, so", "first,  \n  so"),
        ("first, so", "first,\n\n  so"), ("\n## Connect", "\n* * *\n\n## Connect"),
        ("In lab 02", "In *lab 02*"), ("In lab 02", "In lab\n02"), ("title: A", "\ntitle: A"),
    ],
)  # fmt: skip
def test_ordinary_markdown_is_no_finding(scratch: Scratch, old: str, new: str) -> None:
    assert old in scratch.read("note.md")
    text = scratch.read("note.md").replace(old, new)
    scratch.lab.joinpath("note.md").write_bytes(text.encode())
    assert scratch.codes() == []


@pytest.mark.parametrize("row", ["", "\n", "é — ", "\t", "`x` "])
def test_a_finding_points_at_the_citation(scratch: Scratch, row: str) -> None:
    scratch.replace("note.md", "`pkg/scaler.py:L14-L15`", f"{row}`pkg/scaler.py:L14-L99`")
    scratch.replace("note.es.md", "`pkg/scaler.py:L14-L15`", "`pkg/scaler.py:L14-L99`")
    finding = next(finding for finding in scratch.check().findings if finding.code == "N205")
    lines = scratch.read(finding.filename.rpartition("/")[2]).split("\n")
    assert lines[finding.span.row - 1][finding.span.column - 1 :].startswith(
        "`pkg/scaler.py:L14-L99`"
    )


def test_a_finding_in_html_points_at_the_tag() -> None:
    image = reading.read("a\n\n<div>\n  <img src=x>\n</div>\n").images[0]
    assert (image.span.row, image.span.column) == (4, 3)
