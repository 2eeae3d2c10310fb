"""Lab 04: pages show what a run gives; wrong ways are wrong where the answers say, no more."""

from __future__ import annotations

import pytest

from pages.blocks import LANGUAGES, read_block, solution_page
from pages.runs import lab_04
from pages.runs.lab_04 import LAB, SHOWN, paragraphs_of, verdicts

pytestmark = pytest.mark.usefixtures("pages_on_pool")


@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.ci)])
def test_only_one_way_is_right_and_one_rank_of_experts_hides_the_others(
    small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:
        for way in lab_04.WAYS:
            monkeypatch.setitem(lab_04.WAYS, way, lab_04.WAYS[way] | {"hidden": 16, "tokens": 32})
    table = verdicts()
    for language in LANGUAGES:
        assert (read_block(solution_page(LAB, language), "ways") == table) is not small
    wrong = {line.split(",")[0][2:] for line in table.splitlines() if "×" in line}
    assert wrong == {"a", "c", "d"}
    assert all(line.endswith("| = |") for line in table.splitlines()[2:])  # at EP = 1


@pytest.mark.ci
def test_skewed_tokens_all_go_to_one_rank_and_a_capacity_drops_them() -> None:
    paragraphs = paragraphs_of(SHOWN)
    assert "4.00 x the mean; 1024 rows, of 1024 chosen" in paragraphs["skew"][1]
    assert "321 rows, of 1024 chosen" in paragraphs["capacity"][1]
    assert "1.05 x the mean" in paragraphs["aux"][1]
