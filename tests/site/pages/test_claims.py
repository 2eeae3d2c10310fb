"""Claims are cards: words first, the verdict folded where a lab asks it, one verdict alone."""

from __future__ import annotations

from typing import Any

import pytest

from costlab.judge.claims import load
from tests.site.reader import Reader
from tests.site.test_build import REPOSITORY

PAGE = "experiments/35-allreduce-costs/CLAIMS/"
CLAIMS = load(REPOSITORY / PAGE.replace("CLAIMS/", "claims.toml"))
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
    browser: Any, served: str, language: str, words: tuple[str, str, str]
) -> None:
    show, refuted, everything = words
    reader = Reader(browser, served, viewport={"width": 390, "height": 844})
    page = reader.read(f"{language}{PAGE}#claim-7")
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
    assert not reader.wrong
    reader.close()


def test_every_lab_that_claims_answer_is_there() -> None:
    labs = {path.name.partition("-")[0] for path in (REPOSITORY / "docs/labs").glob("*.md")}
    assert {claim.lab for claim in CLAIMS if claim.lab} <= labs
    assert len({claim.lab for claim in CLAIMS}) >= 3
