"""Pages that answer a lab are in no menu and in no search, and one link away for who asks."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from mkdocs.config import load_config

from sitelab import prepare
from tests.site.reader import OpenReader
from tests.site.test_build import REPOSITORY, list_sources

LANGUAGES = ["", "es/"]
DOOR = re.compile(r'<details class="door">(.*?)</details>', re.DOTALL)
MENU = re.compile(r'<nav class="md-nav md-nav--primary[^"]*".*?</nav>\s*</div>', re.DOTALL)
# Lab 03's answers are notes.
LABS = [
    f"labs/{page.name.removesuffix('.es.md')}/"
    for page in sorted((REPOSITORY / "docs/labs").glob("0*.es.md"))
    if not page.name.startswith("03-")
]
MISSING = "not-found.md"  # no menu and no search has the page of a missing address either


@cache
def list_answers() -> list[str]:
    """Return the addresses, below a language's root, of the pages that answer a lab."""
    config = load_config(str(REPOSITORY / "mkdocs.yml"))
    uris = [
        uri.as_posix()
        for uri, file in list_sources().items()
        if prepare.answers_a_lab(file.relative_to(REPOSITORY).as_posix(), config)
    ]
    return sorted(
        f"{uri.removesuffix('.md')}/" for uri in uris if ".es." not in uri and uri != MISSING
    )


def list_links(html: str, place: str) -> set[str]:
    """Return the addresses, below a language's root, to which a page's links lead."""
    links = re.findall(r'href="([^"#]+)', html)
    local = (Path("/", place, link).resolve().as_posix()[1:] for link in links if ":" not in link)
    return {f"{address}/" for address in local}


def test_finished_notes_solutions_claims_and_the_page_that_quotes_them_answer_a_lab() -> None:
    folders = {address.split("/")[0] for address in list_answers()}
    assert folders == {"experiments", "solutions", "reference"}
    assert [address for address in list_answers() if address.startswith("reference/")] == [
        "reference/since/"
    ]
    assert "experiments/35-reading-notes/synthesis/" in list_answers()
    assert "experiments/35-allreduce-costs/CLAIMS/" in list_answers()
    assert "experiments/35-allreduce-costs/RESULTS/" not in list_answers()


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_answers_a_lab_is_in_no_menu_and_in_no_search(site: Path, language: str) -> None:
    for place in ["", *LABS, *list_answers()]:
        menu = MENU.search((site / language / place / "index.html").read_text())
        assert menu, place
        assert list_links(menu[0], place) & {*list_answers()} - {place} == set(), place
    entries = json.loads((site / language / "search/search_index.json").read_text())["docs"]
    searchable = {entry["location"].partition("#")[0] for entry in entries}
    assert searchable & {*list_answers()} == set()
    everything = [uri for uri in list_sources() if ".es." not in uri.name and uri.name != MISSING]
    assert len(searchable) == len(everything) - len(list_answers())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_verdict_that_a_theory_page_folds_away_is_not_found(site: Path, language: str) -> None:
    entries = json.loads((site / language / "search/search_index.json").read_text())["docs"]
    texts = " ".join(entry["text"] for entry in entries if entry["location"].startswith("theory/"))
    assert "num_hops" in texts  # what the page says itself is
    folded = (site / language / "theory/02-tensor-parallelism/index.html").read_text()
    assert "explicit_expert_comm" in folded.partition('<details class="answers">')[2]
    assert "explicit_expert_comm" not in texts


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_answer_is_behind_a_door(site: Path, language: str) -> None:
    place = "reference/site/"
    (door,) = DOOR.findall((site / language / place / "index.html").read_text())
    assert list_links(door, place) >= {*list_answers()}
    for lab in LABS:
        doors = " ".join(DOOR.findall((site / language / lab / "index.html").read_text()))
        number = lab.split("/")[1].partition("-")[0]
        assert any(f"solutions/{number}-" in address for address in list_links(doors, lab)), lab


@pytest.mark.parametrize(
    ("language", "width"),
    [
        ("es/", 390),
        pytest.param("", 390, marks=pytest.mark.ci),
        pytest.param("", 1440, marks=pytest.mark.ci),
        pytest.param("es/", 1440, marks=pytest.mark.ci),
    ],
)
def test_one_click_opens_the_door(open_reader: OpenReader, language: str, width: int) -> None:
    reader = open_reader(viewport={"width": width, "height": 844})
    page = reader.read(f"{language}{LABS[0]}")
    link = page.locator("details.door a[href*='solutions/00']")
    assert not link.is_visible()
    page.locator("details.door summary").click()
    assert link.is_visible()
    link.click()
    page.wait_for_url(f"**/{language}solutions/00-ffn-by-hand/")
