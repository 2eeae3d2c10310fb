"""A quoted number's row is found: marked, its columns' heads in sight; paper has no rows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.site.reader import Reader

PAGE = "experiments/35-allreduce-costs/RESULTS/"
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
    browser: Any, served: str, address: str
) -> None:
    reader = Reader(browser, served, viewport={"width": 1280, "height": 900})
    assert reader.read(address).evaluate(TOO_WIDE) == []
    reader.close()


@pytest.mark.parametrize("row", ROWS)
def test_a_link_to_a_row_opens_its_fold_marks_it_and_shows_its_columns_heads(
    browser: Any, served: str, row: str
) -> None:
    reader = Reader(browser, served, viewport={"width": 1440, "height": 900})
    page = reader.read(f"{PAGE}#{row}")
    wanted = {"row": True, "heads": True, "marked": True}
    reader.until(f"id => JSON.stringify(({IN_SIGHT})(id)) === '{_json(wanted)}'", row)
    assert page.evaluate(TOO_WIDE) == []
    printed = page.pdf()
    assert 4 < len(re.findall(rb"/Type\s*/Page[^s]", printed)) < 12
    assert not reader.wrong
    reader.close()


def _json(of: dict[str, bool]) -> str:
    return "{" + ",".join(f'"{name}":{str(value).lower()}' for name, value in of.items()) + "}"
