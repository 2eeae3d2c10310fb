"""A Spanish page writes a number as its English page does: a point, and spaces between thousands.

With 131.072 for tokens and 1.25 for a ratio on one page, a reader can't tell which is which.
"""

import re
from pathlib import Path

import pytest

from tests.docs.page import ROOT, every_page, spanish

PAIRS = [page for page in every_page() if spanish(page).exists()]


def numbers(text: str) -> set[str]:
    """Return the numbers that have a point or a comma."""
    return set(re.findall(r"\d+(?:[.,]\d+)+", text))


@pytest.mark.parametrize("page", PAIRS, ids=lambda page: str(page.relative_to(ROOT)))
def test_points_and_commas_in_numbers_are_the_english_page_s(page: Path) -> None:
    text = page.read_text("utf-8")
    without_thousands = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    known = numbers(text) | numbers(without_thousands)
    assert sorted(numbers(spanish(page).read_text("utf-8")) - known) == []
