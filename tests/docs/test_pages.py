"""Each page, in both languages, is held to all checks; a failure names page, line and check."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs import lab_checks, page_checks
from tests.docs.page import ROOT, list_pages, path_of

CHECKS = (*page_checks.CHECKS, *lab_checks.CHECKS)
PAGES = list_pages()


def find_faults(page: Path) -> list[str]:
    """Return what is wrong with a page, a line each."""
    text = page.read_text("utf-8")
    return [
        f"{page.name}:{line}: {check.__name__}: {fault}"
        for check in CHECKS
        for line, fault in check(page, text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_a_page_has_the_form_of_all_pages(page: Path) -> None:
    faults = find_faults(page)
    assert not faults, "\n".join(faults)


def list_spanish(words: dict[str, Any], spanish: bool = False) -> Iterator[str]:
    """Yield the Spanish texts of a table of words: all that is under `es`."""
    for name, value in words.items():
        if isinstance(value, dict):
            yield from list_spanish(value, spanish or name == "es")
        elif spanish or name == "es":
            yield from [value] if isinstance(value, str) else map(str, value)


@pytest.mark.parametrize("table", sorted(ROOT.glob("tools/**/words.toml")), ids=path_of)
def test_words_of_figures_and_tables_use_the_glossarys_terms(table: Path) -> None:
    texts = list(list_spanish(tomllib.loads(table.read_text("utf-8"))))
    terms = page_checks.TERMS.items()
    assert texts
    assert [
        (text, term) for text in texts for pattern, term in terms if re.search(pattern, text, re.I)
    ] == []


def test_what_the_checks_read_is_there() -> None:
    spanish = [page for page in PAGES if page.name.endswith(".es.md")]
    assert len(spanish) > 100 and len(lab_checks.THEORY) == 8 and len(lab_checks.NOTES) > 5
    assert sum(page_checks.GENERATED.search(page.read_text("utf-8")) is not None for page in PAGES)
    quoted = [
        factor
        for page in PAGES
        for paragraph in page.read_text("utf-8").split("\n\n")
        if page_checks.SPEED.search(paragraph)
        for factor in page_checks.FACTOR.findall(paragraph)
    ]
    assert len(quoted) >= 6  # of zero bubble, three in each language


def test_pages_before_lab_03_give_away_at_most_two_choices_of_ten() -> None:
    notes = "".join(n.read_text("utf-8") for n in lab_checks.NOTES if ".es." not in n.name)
    finished = lab_checks.CHOICE.findall(notes)
    assert len(finished) == 10
    assert lab_checks.choices_shown(finished, lab_checks.THEORY) == []
    assert len(lab_checks.choices_shown(finished, lab_checks.BEFORE_LAB_03)) <= 2
    # The reference reading has 19 choices about the lab's 14 candidates.
    reading = (ROOT / "solutions/03-reading-ref.md").read_text("utf-8")
    groups = lab_checks.CANDIDATES.findall(reading)
    candidates = [choice for group in groups for choice in lab_checks.CHOICE.findall(group)]
    assert len(candidates) == 19
    assert lab_checks.choices_shown(candidates, lab_checks.THEORY) == []
    assert len(lab_checks.choices_shown(candidates, lab_checks.BEFORE_LAB_03)) <= 2


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_a_root_pages_links_lead_somewhere(page: str) -> None:
    # What mkdocs holds for the site's pages, for those that it doesn't build.
    links = page_checks.list_linked_pages((ROOT / page).read_text("utf-8"))
    assert [link for link in links if not (ROOT / link[1]).is_file()] == []
