"""The bench's pages: claims are cards with folded verdicts; a quoted number's row is found."""

from __future__ import annotations

import re

import pytest

from costlab.judge.claims_file import load
from tests.site.reader import OpenReader
from tests.site.test_build import REPOSITORY

CLAIMS_PAGE = "experiments/35-allreduce-costs/CLAIMS/"
CLAIMS = load(REPOSITORY / CLAIMS_PAGE.replace("CLAIMS/", "claims.toml"))
OPEN = "() => [...document.querySelectorAll('.claims tbody tr:not([hidden])')]" \
    ".filter(card => card.querySelector('.verdict').checkVisibility())" \
    ".map(card => card.querySelector('[id^=claim-]').id)"  # fmt: skip
COLOURS = "() => [...document.querySelectorAll('.claims tr.folded')]" \
    ".map(card => getComputedStyle(card).borderInlineStartColor)"  # fmt: skip
WITHIN = """() => [...document.querySelectorAll('.claims tbody tr:not([hidden])')].every(card => {
  const {right, bottom} = card.getBoundingClientRect();
  const boxes = [...card.querySelectorAll('td, code')].map(part => part.getBoundingClientRect());
  const lowest = Math.max(...boxes.map(box => box.bottom));
  return boxes.every(box => box.right < right) && bottom - lowest < 20;
})"""
SHOWN = ("ver el veredicto", "refutada", "todas")


@pytest.mark.parametrize(
    ("language", "words"),
    [
        pytest.param("", ("show the verdict", "refuted", "all"), marks=pytest.mark.ci),
        ("es/", SHOWN),
    ],
)
def test_a_claims_verdict_is_folded_until_asked_for_and_one_verdict_can_be_chosen(
    open_reader: OpenReader, language: str, words: tuple[str, str, str]
) -> None:
    show, refuted, everything = words
    reader = open_reader(viewport={"width": 390, "height": 844})
    page = reader.read(f"{language}{CLAIMS_PAGE}#claim-7")
    free = {f"claim-{claim.number}" for claim in CLAIMS if not claim.lab}
    assert {*page.evaluate(OPEN)} == free | {"claim-7"}  # whoever follows a link to it wants it
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(WITHIN)  # nothing beside a card, and no empty space in it
    assert len({*page.evaluate(COLOURS)}) == 1  # nor does a folded card's colour tell
    claim = page.locator(".claims tr:has(#claim-2)")
    claim.get_by_role("button", name=show).click()
    assert {*page.evaluate(OPEN)} == free | {"claim-7", "claim-2"}
    page.locator(".claims-chosen").get_by_role("button", name=refuted).click()
    shown_verdicts = page.locator(".claims tbody tr:not([hidden]) .verdict").all_inner_texts()
    assert len(shown_verdicts) > 5 and {*shown_verdicts} == {refuted}
    page.locator(".claims-chosen").get_by_role("button", name=everything).click()
    assert page.locator(".claims tbody tr:not([hidden])").count() == len(CLAIMS)


@pytest.mark.parametrize(
    ("language", "reveal", "fold"),
    [
        ("", "Show all verdicts", "Fold what labs ask"),
        ("es/", "Ver todos los veredictos", "Plegar lo que preguntan los laboratorios"),
    ],
)
def test_one_button_shows_all_verdicts_and_folds_them_again(
    open_reader: OpenReader, language: str, reveal: str, fold: str
) -> None:
    page = open_reader(viewport={"width": 1440, "height": 900}).read(language + CLAIMS_PAGE)
    button = page.locator(".claims-bar > button")
    assert button.inner_text() == reveal
    button.click()
    assert len(page.evaluate(OPEN)) == len(CLAIMS) and button.inner_text() == fold
    assert not page.locator(".claims td button:visible").count()
    page.evaluate("scrollTo(0, 9000)")  # the choice stays in sight, below the header
    box, header = button.bounding_box(), page.locator(".md-header").bounding_box()
    assert header["height"] <= box["y"] < 200
    button.click()
    assert len(page.evaluate(OPEN)) == sum(not claim.lab for claim in CLAIMS)


def test_every_lab_that_claims_answer_is_there() -> None:
    labs = {path.name.partition("-")[0] for path in (REPOSITORY / "docs/labs").glob("*.md")}
    assert {claim.lab for claim in CLAIMS if claim.lab} <= labs
    assert len({claim.lab for claim in CLAIMS}) >= 3


RESULTS = "experiments/35-allreduce-costs/RESULTS/"
# Deep in folded tables: a row, and a cell of many with a place of their own.
ROWS = ["tp-h128-share-volume-shardlab-gloo", "collective-gloo-all_reduce-n2-262144-blocking"]
TOO_WIDE = """() => [...document.querySelectorAll(".md-typeset__scrollwrap")]
  .filter(wrap => !wrap.closest("details") && wrap.scrollWidth > wrap.clientWidth)
  .map(wrap => wrap.innerText)"""
IN_SIGHT = """id => {
  const row = document.getElementById(id).closest("tr");
  const heads = row.closest("table").querySelector("thead");
  const seen = element => {
    const box = element.getBoundingClientRect();
    const at = document.elementFromPoint(box.left + 20, box.top + box.height / 2);
    return element.contains(at);
  };
  return {row: seen(row), heads: seen(heads.querySelector("th")),
          marked: getComputedStyle(row.cells[1]).backgroundColor !==
                  getComputedStyle(row.nextElementSibling.cells[1]).backgroundColor};
}"""


@pytest.mark.parametrize("address", ["theory/09-choosing-a-layout/", "labs/01-three-d/"])
def test_a_table_of_many_short_numbers_fits_beside_the_menu(
    open_reader: OpenReader, address: str
) -> None:
    reader = open_reader(viewport={"width": 1280, "height": 900})
    assert reader.read(address).evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("row", ROWS)
def test_a_link_to_a_row_opens_its_fold_marks_it_and_shows_its_columns_heads(
    open_reader: OpenReader, row: str
) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    page = reader.read(f"{RESULTS}#{row}")
    wanted = {"row": True, "heads": True, "marked": True}
    reader.until(f"id => JSON.stringify(({IN_SIGHT})(id)) === '{_json(wanted)}'", row)
    assert page.evaluate(TOO_WIDE) == []
    printed = page.pdf()
    assert 4 < len(re.findall(rb"/Type\s*/Page[^s]", printed)) < 12


def _json(of: dict[str, bool]) -> str:
    return "{" + ",".join(f'"{name}":{str(value).lower()}' for name, value in of.items()) + "}"
