"""A figure of ours stands in its page, in the page's language, and says what the picture said."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitelab.drawing import inline_figures

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
    html = inline_figures.drawn(f'<p><img alt="A &amp; B" src="{source}"></p>', DOCS, language)
    assert html.startswith('<p><svg role="img" aria-label="A &amp; B"')
    assert word in html and "<img" not in html


def test_other_pictures_stay_pictures() -> None:
    html = '<img alt="" src="assets/check.svg"><img alt="" src="assets/figures.svg">'
    assert inline_figures.drawn(html, DOCS, "en") == html
