"""No page is a dead end: each is in a menu or has a bar, and what belongs to a lab leads to it."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.site.pages.test_answer_pages import MENU, list_answers, list_links
from tests.site.places import Place, list_places
from tests.site.reader import OpenReader

LANGUAGES = ["", "es/"]
TRAIL = re.compile(r'<nav class="trail".*?</nav>', re.DOTALL)
FOOT = re.compile(r'<nav class="md-footer__inner.*?</nav>', re.DOTALL)
TAB = re.compile(r'<ul class="md-tabs__list">.*?</ul>', re.DOTALL)
GOAL = re.compile(r'</h1><p class="goal"><b>.*?</b> \S.*?</p>')
TITLE = re.compile(r"<h1.*?</h1>")
DONE = "[...document.querySelectorAll('.done')].map(title => title.textContent.trim())"


def read(site: Path, address: str, part: re.Pattern[str]) -> str:
    """Return a part of a built page, or "" if the page doesn't have it."""
    match = part.search((site / address / "index.html").read_text("utf-8"))
    return match[0] if match else ""


def follow(foot: str, address: str, way: str) -> str:
    """Return the address to which a page's foot leads: "prev" or "next"."""
    links = re.findall(rf'href="([^"]*)" class="md-footer__link md-footer__link--{way}"', foot)
    (link,) = list_links(f'href="{links[0]}"', address)
    return link


def belongs_to_a_lab(place: Place) -> bool:
    folder = place.address.removeprefix("es/").split("/")[0]
    return folder in ("experiments", "solutions") or "/since/" in f"/{place.address}"


def test_each_page_is_in_its_menu_or_has_a_bar_and_leads_to_its_lab(site: Path) -> None:
    for place in (place for place in list_places() if "not-found" not in place.address):
        menu, trail, foot = (read(site, place.address, part) for part in (MENU, TRAIL, FOOT))
        assert "md-nav__link--active" in menu or trail, place
        assert foot, place
        if belongs_to_a_lab(place):
            assert any("labs/" in link for link in list_links(trail, place.address)), place
            assert read(site, place.address, TAB).count("md-tabs__item--active") == 1, place


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_results_lead_to_their_lab_and_to_the_judged_claims(site: Path, language: str) -> None:
    pages = [f"{language}experiments/35-allreduce-costs/{name}/" for name in ("RESULTS", "CLAIMS")]
    for here, there in (pages, pages[::-1]):
        assert there in list_links(read(site, here, TRAIL), here)
    labs = [f"{language}labs/{name}/" for name in ("02-allreduce-costs", "01-three-d")]
    rows = [labs[0], *pages], [labs[1], f"{language}experiments/36-compositions/MUSEUM/"]
    for before, here in (pair for row in rows for pair in pairwise(row)):
        assert follow(read(site, here, FOOT), here, "prev") == before


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_changelog_leads_to_the_front_page(site: Path, language: str) -> None:
    place = f"{language}CHANGELOG/"
    assert list_links(read(site, place, TRAIL), place) == {language or "/"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_answers_of_a_lab_are_neighbours_between_it_and_the_next_page(
    site: Path, language: str
) -> None:
    here = f"{language}labs/03-annotated-reading/"
    seen = [here, f"{language}experiments/35-reading-notes/megatron-tp-layers/"]
    while "labs/" not in seen[-1]:
        foot = read(site, seen[-1], FOOT)
        assert follow(foot, seen[-1], "prev") == seen[-2]
        seen.append(follow(foot, seen[-1], "next"))
    assert len(seen) == 2 + 3 + 1 + 4 + 1  # notes, reference reading, further readings, since
    assert seen[-1] == f"{language}labs/04-experts/"
    assert {*seen[1:-1]} < {language + address for address in list_answers()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_page_of_the_path_has_a_goal_and_theory_is_numbered(site: Path, language: str) -> None:
    for place in list_places():
        if place.address.startswith((f"{language}theory/", f"{language}labs/")):
            assert read(site, place.address, GOAL), place
        if place.address.startswith(f"{language}theory/"):
            number = f"{int(place.source.name[:2])}. "
            assert re.sub("<.*?>", "", read(site, place.address, TITLE)).startswith(number)
    menu = re.sub(r"\s+", " ", read(site, f"{language}theory/01-collectives/", MENU))
    assert re.search(r"> 11\. [^<]*<br> <small>45 min</small>", menu)
    third = f"{language}theory/03-sharded-data-parallelism/"
    assert "2. " in read(site, third, FOOT) and "4. " in read(site, third, FOOT)


@pytest.mark.parametrize(
    ("address", "room", "lab"),
    [
        ("experiments/35-allreduce-costs/CLAIMS/", "Results", "Claims, judged"),
        ("es/solutions/04-experts/", "Laboratorios", "Laboratorio 04"),
        ("experiments/35-reading-notes/synthesis/", "Labs", "Lab 03"),
    ],
)
def test_an_answer_has_the_menu_of_its_lab_and_the_lab_is_marked(
    open_reader: OpenReader, address: str, room: str, lab: str
) -> None:
    page = open_reader(viewport={"width": 1440, "height": 900}).read(address)
    assert page.locator(".md-tabs__item--active").inner_text() == room
    marked = page.locator(".md-sidebar--primary .md-nav__link--active:visible:not(label)")
    assert [name.partition(":")[0] for name in marked.all_inner_texts()] == [lab]
    below = page.locator(".trail-pages > li:visible").all_inner_texts()
    bar = page.locator(".trail > :not(:first-child)").all_inner_texts()
    assert below == (bar if "Lab" in lab else [])


def test_a_page_that_is_done_is_ticked_in_both_languages_until_it_is_not(
    open_reader: OpenReader,
) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    page = reader.read("theory/01-collectives/")
    page.get_by_label("I am done with this page").check()
    (in_menu,) = page.evaluate(DONE)
    assert in_menu.startswith("1. Collectives")
    page = reader.read("es/")
    on_path, at_foot = page.evaluate(DONE)
    assert at_foot == f"1. {on_path}" == "1. Las colectivas y lo que cuestan"
    page = reader.read("es/theory/01-collectives/")
    choice = page.get_by_label("He terminado esta página")
    assert choice.is_checked()
    choice.uncheck()
    assert page.evaluate(DONE) == []
    assert reader.read("theory/02-tensor-parallelism/").evaluate(DONE) == []


def test_the_front_page_goes_on_with_the_first_page_that_is_not_done(
    open_reader: OpenReader,
) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    says = {
        "": "Continue with theory 2, Continue with lab 00, Start with theory 1",
        "es/": "Seguir con la teoría 2, Seguir con el laboratorio 00, Empezar por la teoría 1",
    }
    for home, texts in says.items():
        page = reader.read(home)
        pages = page.locator(".path li > a").evaluate_all("all => all.map(link => link.href)")
        done = [address.removeprefix(reader.served + home) for address in pages]
        for count, text in zip((1, 11, len(done)), texts.split(", "), strict=True):
            page.evaluate("n => localStorage['shardbook.done'] = JSON.stringify(n)", done[:count])
            button = reader.read(home).locator(".hero .md-button--primary")
            assert button.inner_text() == text
            assert button.evaluate("link => link.href") == pages[count % len(done)]


def test_a_telephone_names_the_page_before_and_the_page_after(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 844})
    page = reader.read("theory/07-from-bin-idx-to-a-batch/")
    titles = page.locator(".md-footer__title:visible").all_inner_texts()
    assert [title.split("\n")[-1][:3] for title in titles] == ["6. ", "8. "]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
