"""Lab 03 asks and points; it doesn't hand over the notes that it wants written."""

import re
from pathlib import Path

import pytest

from tests.docs.page import ROOT

LABS = sorted((ROOT / "docs/labs").glob("03-annotated-reading*.md"))
NOTES = sorted((ROOT / "experiments/35-reading-notes").glob("*.md"))
THEORY = sorted((ROOT / "docs/theory").glob("0[1-4]-*.md"))
EARLIER_LABS = sorted((ROOT / "docs/labs").glob("0[0-2]*.md"))
CITATION = re.compile(r"[\w/.-]+\.\w+:L\d+(?:-L\d+)?")
CLAIMS = re.compile(
    r"^## (?:What the claims come to|En qué quedan las afirmaciones)\n(.*?)^## ", re.M | re.S
)


CHOICE = re.compile(r"^- \*\*.*\n(?:  .*\n)*", re.M)
LINES = re.compile(r"([\w/.-]+\.py):L(\d+)(?:-L(\d+))?")
CANDIDATES = re.compile(
    r"^### The (?:lab's candidates|candidates of Block C)\n(.*?)^###? ", re.M | re.S
)


def name(page: Path) -> str:
    return page.name


def cited_lines(text: str) -> set[tuple[str, int]]:
    """Return every line that the text cites, as its file and its number."""
    return {
        (path, line)
        for path, first, last in LINES.findall(text)
        for line in range(int(first), int(last or first) + 1)
    }


def choices_shown(text: str, pages: list[Path] = THEORY) -> list[str]:
    """Return the choices of which one of the English pages cites a line."""
    english = [page for page in pages if ".es." not in page.name]
    lines = set().union(*(cited_lines(page.read_text("utf-8")) for page in english))
    return [choice for choice in CHOICE.findall(text) if cited_lines(choice) & lines]


def list_citations(page: Path) -> set[str]:
    return set(CITATION.findall(page.read_text("utf-8")))


@pytest.mark.parametrize("lab", LABS, ids=name)
def test_no_citation_of_the_finished_notes_stands_in_the_lab(lab: Path) -> None:
    finished = set().union(*map(list_citations, NOTES))
    assert len(finished) > 30 and list_citations(lab)
    assert list_citations(lab) & finished == set()


@pytest.mark.parametrize("lab", LABS, ids=name)
def test_a_hint_names_symbols_and_no_lines(lab: Path) -> None:
    folded = re.findall(r'^\?\?\? \w+ "(.*)"\n((?: {4}.*\n|\n)+)', lab.read_text("utf-8"), re.M)
    assert len(folded) > 15
    assert [title for title, body in folded if CITATION.search(body)] == []


@pytest.mark.parametrize("page", THEORY, ids=name)
def test_what_the_claims_come_to_is_folded_until_the_lab_is_done(page: Path) -> None:
    section = CLAIMS.search(page.read_text("utf-8"))
    assert section, "the table has a section of its own"
    body = section[1].strip()
    before, opening, folded = body.partition('<details class="answers" markdown="1">\n<summary>')
    assert opening and "|" not in before, "the table is inside the fold"
    assert body.endswith("</details>")
    summary = folded.partition("</summary>")[0]
    assert re.search(r"[Ll]ab(?:oratorio)? 03", summary), "the summary says until when"


def test_theory_cites_the_lines_of_at_most_two_finished_choices() -> None:
    notes = [note.read_text("utf-8") for note in NOTES if ".es." not in note.name]
    assert sum(len(CHOICE.findall(note)) for note in notes) == 10
    assert len([choice for note in notes for choice in choices_shown(note)]) <= 2


def test_theory_cites_no_line_of_a_candidates_reference_choice() -> None:
    reading = (ROOT / "solutions/03-reading-ref.md").read_text("utf-8")
    candidates = CANDIDATES.findall(reading)
    assert sum(len(CHOICE.findall(group)) for group in candidates) == 19
    assert [choice for group in candidates for choice in choices_shown(group)] == []


@pytest.mark.parametrize("page", THEORY, ids=name)
def test_a_theory_page_before_the_lab_links_no_finished_note(page: Path) -> None:
    assert "35-reading-notes" not in page.read_text("utf-8")


ASKED = re.compile(
    r"\*\*(?:at least|al menos) (three|tres)\*\*.*?(?:labs|laboratorios) 00 (?:to|a) 02", re.S
)


@pytest.mark.parametrize("lab", LABS, ids=name)
def test_the_lab_asks_for_no_more_new_lines_than_the_finished_notes_have(lab: Path) -> None:
    assert ASKED.search(lab.read_text("utf-8")), "how many choices cite only new lines"
    finished = "".join(note.read_text("utf-8") for note in NOTES if ".es." not in note.name)
    shown = choices_shown(finished, THEORY + EARLIER_LABS)
    assert 0 < len(shown) <= len(CHOICE.findall(finished)) - 3
