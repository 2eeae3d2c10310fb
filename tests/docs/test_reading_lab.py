"""Lab 03 asks and points; it doesn't hand over the notes that it wants written."""

import re
from pathlib import Path

import pytest

from tests.docs.page import ROOT

LABS = sorted((ROOT / "docs/labs").glob("03-annotated-reading*.md"))
NOTES = sorted((ROOT / "experiments/35-reading-notes").glob("*.md"))
THEORY = sorted((ROOT / "docs/theory").glob("0[1-4]-*.md"))
CITATION = re.compile(r"[\w/.-]+\.\w+:L\d+(?:-L\d+)?")
CLAIMS = re.compile(
    r"^## (?:What the claims come to|En qué quedan las afirmaciones)\n(.*?)^## ", re.M | re.S
)


def name(page: Path) -> str:
    return page.name


def cited(page: Path) -> set[str]:
    return set(CITATION.findall(page.read_text("utf-8")))


@pytest.mark.parametrize("lab", LABS, ids=name)
def test_no_citation_of_the_finished_notes_stands_in_the_lab(lab: Path) -> None:
    finished = set().union(*map(cited, NOTES))
    assert len(finished) > 30 and cited(lab)
    assert cited(lab) & finished == set()


@pytest.mark.parametrize("lab", LABS, ids=name)
def test_a_hint_names_symbols_and_no_lines(lab: Path) -> None:
    folded = re.findall(r'^\?\?\? \w+ "(.*)"\n((?: {4}.*\n|\n)+)', lab.read_text("utf-8"), re.M)
    assert len(folded) > 15
    assert [title for title, body in folded if CITATION.search(body)] == []


@pytest.mark.parametrize("page", THEORY, ids=name)
def test_what_the_claims_come_to_is_folded_until_the_lab_is_done(page: Path) -> None:
    found = CLAIMS.search(page.read_text("utf-8"))
    assert found, "the table has a section of its own"
    body = found[1].strip()
    assert body.startswith('<details class="answers" markdown="1">\n<summary>')
    assert body.endswith("</details>")
    summary = body.partition("</summary>")[0]
    assert re.search(r"[Ll]ab(?:oratorio)? 03", summary), "the summary says until when"
