"""Candidates: every form with its place in the document, and its text for another place."""

import msgspec
import pytest

from notelab.page.candidates import Candidate, find_candidates, move, relocate, replace

BLOB = "https://example.org/o/s/blob"
LAB, BIT = "https://e.org/o/s/-", "https://e.org/o/s/src"
SHA = "ab" * 20
# A form as it is written, and the same form for lines 20 to 22 of x/new.py.
MOVED = [
    ("a/b.py:4-6", "`{}`", "x/new.py:20-22"),
    ("b.py:L4", "`{}`", "x/new.py:L20-L22"),
    ("a/b.py#L4-L6", "`{}`", "x/new.py#L20-L22"),
    ("a/b.py:4:1", "`{}`", "x/new.py:20-22"),
    ("a/b4.py:4", "see {}.", "x/new.py:20-22"),
    ("`b4.py`, lines 4–6", "{}", "`x/new.py`, lines 20–22"),
    ("`b4.py` (line 4)", "{}", "`x/new.py` (line 20-22)"),
    ("lines 4 to 6 of `b4.py`", "{}", "lines 20-22 of `x/new.py`"),
    (f"{BLOB}/{SHA}/a/b.py#L4-L6", "[b]({})", f"{BLOB}/{'cd' * 20}/x/new.py#L20-L22"),
    (f"{BLOB}/v1.0/a/b.py#L4", "<{}>", f"{BLOB}/{'cd' * 20}/x/new.py#L20-L22"),
    (f"{LAB}/blob/v1/a/b.py#L4-6", "{}", f"{LAB}/blob/{'cd' * 20}/x/new.py#L20-22"),
    (f"{BIT}/v1/a/b.py#lines-4:6", "{}", f"{BIT}/{'cd' * 20}/x/new.py#lines-20:22"),
    ("it's (here) 4.md:L4", "`{}`", "x/new.py:L20-L22"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "around", "moved"), MOVED)
def test_a_candidate_moves_in_its_own_form(written: str, around: str, moved: str) -> None:
    text = f"# T\n\nThe name `b` é: {around.format(written)} and more.\n"
    [candidate] = find_candidates(text)
    assert (candidate.written, candidate.citation.first) == (written, 4)
    new = move(candidate, "x/new.py", 20, 22, "cd" * 20)
    assert replace(text, [(candidate.place, new)]) == text.replace(written, moved)


LINKS = [  # of a page in docs/, before and after a/b.py moves to x/new.py
    ("[it](../a/b.py#L4-L6)", "[it](../x/new.py#L20-L22)"),
    ("[b.py:4](/a/b.py#L4-L6)", "[new.py:20](/x/new.py#L20-L22)"),
    ("[`a/b.py`, line 4](<../a/b.py#L4-L6>)", "[`x/new.py`, line 20](<../x/new.py#L20-L22>)"),
    ("`../a/b.py:4-6`", "`../x/new.py:20-22`"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "moved"), LINKS)
def test_a_path_from_the_page_still_leads_from_there(written: str, moved: str) -> None:
    text = f"The name `b`: {written} and more.\n"
    [candidate] = find_candidates(text)
    citation = msgspec.structs.replace(candidate.citation, path="a/b.py")
    candidate = msgspec.structs.replace(candidate, citation=citation)
    edit = relocate(candidate, "x/new.py", 20, 22)
    assert replace(text, [edit]) == text.replace(written, moved)


def test_several_candidates_of_a_row_are_replaced_together() -> None:
    text = "`a.py:1-3, 9`, b.py:4 and lines 5 and 7 of `c.py`\n\n[x][1]\n\n[1]: ../d.py#L8\n"
    candidates = find_candidates(text)
    edits = []
    for candidate in candidates:
        citation = candidate.citation
        new = move(candidate, citation.path, citation.first + 100, citation.last + 100)
        edits.append((candidate.place, new))
    expected = "`a.py:101-103, 109`, b.py:104 and lines 105 and 107 of `c.py`\n\n[x][1]\n\n"
    assert replace(text, edits) == f"{expected}[1]: ../d.py#L108\n"


def read_one(text: str) -> Candidate:
    [candidate] = find_candidates(f"{text}\n")
    return candidate


def test_a_candidate_says_its_label_its_form_and_the_names_around_it() -> None:
    candidate = read_one(f"`total` is [the `sum` [1]]({BLOB}/v1/a.py#L4)")
    assert candidate.label == "the `sum` [1]"
    assert (candidate.citation.form, candidate.citation.commit) == ("address", "v1")
    assert candidate.block.names == ["total", "sum"]
    assert read_one("`a.py#C.m`").citation.symbol == "C.m"
    assert read_one("`Makefile:4`").citation.form == "maybe"


@pytest.mark.parametrize("text", ["**a.py**:9", "`a.py`,\nline 9", r"a\_b.py:9"])
def test_text_with_other_markup_has_no_place(text: str) -> None:
    candidate = read_one(text)
    assert (candidate.citation.first, candidate.place.row) == (9, 0)
    assert replace(text, [(candidate.place, "x")]) == text
