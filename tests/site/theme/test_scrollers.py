"""At a desk only code is cut, on a telephone few tables; an edge says that there is more."""

from __future__ import annotations

import pytest

from tests.site.places import list_places
from tests.site.reader import OpenReader

RESULTS = "experiments/35-allreduce-costs/RESULTS/"
PAGES = [
    "theory/03-sharded-data-parallelism/",
    *(
        pytest.param(address, marks=pytest.mark.ci)
        for address in ("theory/04-pipelines-and-the-grid/", "reference/kernels/", f"es/{RESULTS}")
    ),
]
# Blocks that may be cut at a desk: code that is as wide as what it was printed for.
LISTED = "pre > code"
CUT = """listed => [...document.querySelectorAll(".md-content *")].filter(element =>
  ["auto", "scroll"].includes(getComputedStyle(element).overflowX) && element.checkVisibility()
  && element.scrollWidth > element.clientWidth + 1 && !element.matches(listed))
  .map(element => element.textContent.trim().slice(0, 40))"""
# Tables that are wider than a telephone, by page.
WIDE_TABLES = {
    "labs/01-three-d/": 1,
    "labs/02-allreduce-costs/": 1,
    "theory/03-sharded-data-parallelism/": 1,
    "theory/09-choosing-a-layout/": 2,
}
COURSE = [
    place.address
    for place in list_places()
    if place.address.removeprefix("es/").partition("/")[0] in ("", "labs", "theory")
]
# Of a scrolled table, how far its rows' names are from its edge; of others, how wide sentences are.
TABLES = """all => all.map(table => {
  const cut = table.scrollWidth > table.clientWidth + 1;
  table.scrollLeft = 60;
  const edge = table.getBoundingClientRect().left;
  return [cut && table.querySelector("td").getBoundingClientRect().left - edge,
    [...table.querySelectorAll("[data-long]")].map(cell => cell.offsetWidth)];
})"""
PICTURES = """all => all.filter(picture => picture.checkVisibility())
  .map(picture => [picture.getBoundingClientRect().right, picture.naturalWidth])"""


@pytest.mark.parametrize("address", PAGES)
def test_on_a_desk_nothing_but_code_is_cut(open_reader: OpenReader, address: str) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    assert reader.read(address).evaluate(CUT, LISTED) == []
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 1440


@pytest.mark.parametrize("home", ["", pytest.param("es/", marks=pytest.mark.ci)])
def test_a_telephone_shows_the_narrow_drawing_of_each_plot(
    open_reader: OpenReader, home: str
) -> None:
    reader = open_reader(viewport={"width": 390, "height": 844})
    page = reader.read(f"{home}{RESULTS}")
    pictures = page.locator(".md-content img").evaluate_all(PICTURES)
    assert len(pictures) == 4
    assert all(right <= 390 and 0 < width < 400 for right, width in pictures)


def test_claims_fit_the_narrowest_telephone(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 320, "height": 640})
    page = reader.read(RESULTS.replace("RESULTS", "CLAIMS"))
    assert page.evaluate("document.documentElement.scrollWidth") == 320


def test_a_table_says_how_many_columns_follow(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 844})
    table = reader.read(f"es/{RESULTS}").locator("[data-columns]").filter(visible=True).first
    line = "table => getComputedStyle(table, '::after').content"
    assert table.evaluate(line) == '"2 columnas más →"'
    assert "gradient" in table.evaluate("table => getComputedStyle(table).background")
    table.evaluate("table => { table.scrollLeft = 1e6; }")
    reader.until("() => document.querySelector('[data-more=start]')?.dataset.columns === '\u00a0'")


@pytest.mark.parametrize("address", COURSE)
def test_few_tables_are_wider_than_a_telephone_and_their_rows_keep_their_names(
    open_reader: OpenReader, address: str
) -> None:
    page = open_reader(viewport={"width": 390, "height": 844}).read(address)
    tables = page.locator(".md-typeset__scrollwrap").filter(visible=True).evaluate_all(TABLES)
    heights = "all => Math.min(24, ...all.map(chip => chip.getBoundingClientRect().height))"
    assert page.locator("a.citation:visible").evaluate_all(heights) == 24  # for a finger
    letters = "all => Math.min(11, ...all.map(code => parseFloat(getComputedStyle(code).fontSize)))"
    assert page.locator("pre > code").evaluate_all(letters) == 11
    cut = [name for name, _ in tables if name is not False]
    assert len(cut) == WIDE_TABLES.get(address.removeprefix("es/"), 0)
    assert all(0 <= name < 20 for name in cut)
    assert min((width for _, widths in tables for width in widths), default=90) >= 90
