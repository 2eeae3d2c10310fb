"""Formulas are drawn when the site is built; a wrong one shows its error, and none can run."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from sitelab import katex
from sitelab.drawing import formulas
from sitelab.katex import Formulas, RenderedFormula
from sitelab.pages.tree import parse


@pytest.fixture(scope="module")
def engine() -> Formulas:
    return Formulas()


def mark_formula(tex: str, tag: str = "span") -> str:
    opening, closing = (r"\(", r"\)") if tag == "span" else (r"\[", r"\]")
    return f'<{tag} class="arithmatex">{opening}{tex}{closing}</{tag}>'


def draw(html: str, engine: Formulas, language: str = "en") -> tuple[str, list[tuple[str, str]]]:
    page = parse(html)
    wrong = formulas.draw_formulas(page, engine.draw, language=language)
    return page.html(), wrong


def test_a_formula_is_drawn_for_eyes_and_for_a_screen_reader(engine: Formulas) -> None:
    html, wrong = draw(mark_formula("a &lt; b"), engine)
    assert not wrong
    assert "<mo>&lt;</mo>" in html
    assert 'aria-hidden="true"' in html


def test_a_formula_of_its_own_lines_is_displayed(engine: Formulas) -> None:
    html, _ = draw(mark_formula("x", "div"), engine)
    assert html.startswith('<div class="formula"')
    assert "katex-display" in html


@pytest.mark.parametrize(("language", "words"), [("en", "can't be drawn"), ("es", "no se puede")])
def test_a_wrong_formula_shows_its_source_and_why(
    engine: Formulas, language: str, words: str
) -> None:
    html, wrong = draw(mark_formula(r"\frac{&lt;b>"), engine, language)
    assert words in html
    assert "Unexpected end of input" in html
    assert r"\frac{&lt;b&gt;" in html
    assert len(wrong) == 1


@pytest.mark.parametrize(
    "tex",
    [
        r"\href{javascript:alert(1)}{x}",
        r"\url{javascript:alert(1)}",
        r"\includegraphics{https://example.invalid/x.png}",
        r"\htmlData{onclick=alert(1)}{x}",
        r"\htmlStyle{position:fixed}{x}",
        r"\def\a{\a\a}\a",
        "{" * 20_000,
        "a\0b",
    ],
)
def test_what_could_link_load_or_run_away_is_refused(engine: Formulas, tex: str) -> None:
    answer = engine.draw(tex, display=False)
    assert answer.error
    assert not answer.html
    assert engine.draw("x", display=False).html, "the engine lives on"


def test_markup_in_a_formula_is_text(engine: Formulas) -> None:
    html = engine.draw(r"\text{<script>alert(1)</script>}", display=False).html
    assert html
    assert "<script" not in html


def test_only_a_page_with_a_formula_loads_its_style(site: Path) -> None:
    styled = 0
    for file in site.rglob("index.html"):
        html = file.read_text("utf-8")
        links = re.findall(r'<link rel="stylesheet" href="([^"]*/katex\.min\.css)">', html)
        # The page of cards fetches its questions, some of which have formulas.
        assert len(links) == ('<span class="katex' in html or file.parent.name == "cards"), file
        styled += len(links)
        for link in links:
            assert (file.parent / link).is_file()
    assert styled > 10


def test_formulas_are_drawn_once(engine: Formulas) -> None:
    assert engine.draw("y", display=False) is engine.draw("y", display=False)


def test_code_that_looks_like_a_formula_is_left_alone() -> None:
    html = "<pre><code>\\(x\\)</code></pre>"
    page = parse(html)
    assert (
        formulas.draw_formulas(page, lambda *_, **__: RenderedFormula(error="no"), language="en")
        == []
    )
    assert page.html() == html


def test_the_vendored_katex_is_the_one_that_version_names() -> None:
    number, digest = katex.read_version()
    script = (katex.HERE / "katex.min.js").read_bytes()
    assert sha256(script).hexdigest() == digest
    assert f'version:"{number}"'.encode() in script.replace(b" ", b"")
    assert "MIT" in (katex.HERE / "katex.LICENSE").read_text()


def test_every_font_that_the_style_names_first_is_served() -> None:
    style = (katex.HERE / "katex.min.css").read_text()
    named = {part.split(")")[0] for part in style.split("url(")[1:] if ".woff2)" in part}
    assert named
    assert named <= {Path(name).as_posix() for name in katex.list_served_files()}


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("5as²b and s/(6h + s), 6PD / (N · F)", "as b s h s PD N F"),
        ("34 sbh, 72 sbh²/t, 8 sbf, F/(4B)", "sbh sbh t sbf F B"),
        ("16/72 · (t − 1) · F/(hB) of sbh", "t F hB sbh"),
        ("a rank's 70B model at 5 GiB/s sends 8 B; d't, Intel(R), x-th, 1F1B, ZB2P", ""),
        ("¿Y si no? Y más", ""),
    ],
)
def test_letters_of_formulas_in_a_sentence_look_as_displayed(text: str, letters: str) -> None:
    page = parse(f"<p>{text} <code>n</code></p>")
    formulas.set_letters(page, "en")
    assert [each.text() for each in page.descendants() if each.tag == "i"] == letters.split()
    assert page.text() == f"{text} n"
