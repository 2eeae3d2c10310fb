"""A figure of ours stands in its page, in the page's language, and says what the picture said."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitelab.drawing.svg import embed_pictures
from sitelab.pages.tree import parse
from tests.site.parsed import apply_change

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("language", "source", "word"),
    [
        ("en", "assets/figures/sharding.svg", "all of it"),
        ("es", "../assets/figures/sharding.es.svg", "entera"),
    ],
)
def test_a_figure_is_inlined_in_its_language_and_named_by_its_text(
    language: str, source: str, word: str
) -> None:
    html = apply_change(
        f'<p><img alt="A &amp; B" src="{source}"></p>', embed_pictures, DOCS, language
    )
    assert html.startswith('<p><svg role="img" aria-label="A &amp; B"')
    assert word in html and "<img" not in html


def test_other_pictures_stay_pictures() -> None:
    html = '<img alt="" src="assets/check.svg"><img alt="" src="assets/figures.svg">'
    assert apply_change(html, embed_pictures, DOCS, "en") == html


def test_a_figure_that_is_not_there_is_named_and_stays_a_picture() -> None:
    page = parse('<p><img src="../assets/figures/shardng.svg" alt=""></p>')
    assert embed_pictures(page, DOCS, "en") == ["shardng"]
    assert "<img" in page.html()
