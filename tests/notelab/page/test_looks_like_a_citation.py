"""Text that a reader takes for a citation is proved or refused, in whatever form it is written."""

import pytest

from notelab.page.reading import read
from tests.notelab.scratch import Scratch

FRONT = "---\ntitle: x\n---\n\n"


def read_citations(text: str) -> list[tuple[str, str]]:
    """Return the text and the problem of each citation of a page with one paragraph."""
    return [(citation.text, citation.problem) for citation in read(f"{FRONT}{text}\n").citations]


@pytest.mark.parametrize("text", ["[here](a.py#L15-17-19)", "`a.py:L15-`", "`as a.py:L15 says`"])
def test_a_citation_in_a_form_that_is_not_read_is_refused(text: str) -> None:
    citations = read_citations(f"See {text} there.")
    assert len(citations) == 1, citations
    assert citations[0][1], citations


@pytest.mark.parametrize(
    "text",
    [
        "`a.py`:L15", "`a.py`:15", "`a.py`#L15-L20", "`a.py` line 15", "`a.py`, lines 15-20",
        "`a.py` (line 15)", "`a.py` L15", "`a.py` at line 15", "lines 15–20 of `a.py`",
        "line 15 in `a.py`", "`a.py`, línea 15", "la línea 15 de `a.py`", "a.py:L15",
        "pkg/a.py:15", "pkg/a.py:15:3", "pkg/a.py#L15", "a.py line 15", "a.py, lines 15 to 20",
        "a.py (line 15)", "<b>pkg/a.py:15</b>", "**a.py**:15", "[[a.py#L15]]",
        "`app/[id]/a.py:15`", "`a.py:15:3`", '`"a.py:L15"`', "`'a.py:15'`", "`(a.py:L15)`",
        "`a.py line 15`", "`a.py, lines 15-20`", "`a.py, línea 15`", "[here](a.py#L15)",
        "[here](../../pkg/a.py#L15-L20)", "<a href='../a.py#L15'>here</a>",
    ],
)  # fmt: skip
def test_a_citation_in_an_honest_form_is_read(text: str) -> None:
    [citation] = read(f"{FRONT}See {text} there.\n").citations
    assert (citation.path.endswith("a.py"), citation.first, citation.problem) == (True, 15, "")


@pytest.mark.parametrize(
    "text",
    [
        "`a.py` has 15 lines", "`a.py` and 15 others", "`a.py`: 15 functions of it",
        "in Python 3.11, line 15 of the output", "at 10:15, and e.g. line 4", "15 lines of `a.py`",
        "v2.13.0:12 is a tag", "`x[1:2]` and `d['a/b']:3` and `{'a.py': 1}`",
        "[a page](a.md#lines-of-code) and [a row](RESULTS.md#l15-x)",
        "https://host.example/a/b/blob/main/a.py without lines", "the ratio 1.5/3:15",
        "localhost:8000 and example.org:443",
        "`127.0.0.1:29500`, `localhost:80` and `example.com:443`",
        "`torch.norm L2`, the norm:L2 and 10:30", "<http://host/a.py:L1>",
        "`a.b::c`, `{k: L2}` and `shape (4, 8)`",
    ],
)  # fmt: skip
def test_what_is_no_citation_is_left_alone(text: str) -> None:
    assert read_citations(f"See {text} there.") == []


def test_lines_apart_from_their_path_may_be_several() -> None:
    text = "Lines 3 and 9-11 of `a.py`, b/c.py:1-3, 12; `d.py:5/7,:9`."
    citations = read(f"{FRONT}{text}\n").citations
    places = [(each.path, each.first, each.last) for each in citations]
    assert places == [
        *[("a.py", 3, 3), ("a.py", 9, 11), ("b/c.py", 1, 3), ("b/c.py", 12, 12)],
        *[("d.py", 5, 5), ("d.py", 7, 7), ("d.py", 9, 9)],
    ]


def test_the_words_of_a_path_are_no_names_of_its_lines() -> None:
    [block] = read(f"{FRONT}`total` is set in `pkg/total_sum.py`, line 4.\n").blocks
    assert block.names == ["total"]


def test_a_path_with_brackets_is_a_path(scratch: Scratch) -> None:
    assert read_citations("`app/[id]/page.tsx:L900`") == [("app/[id]/page.tsx:L900", "")]
    scratch.replace("note.md", "`pkg/scaler.py:L22-L25`", "`app/[id]/page.tsx:L900`")
    assert "N203" in scratch.codes("note.md")
