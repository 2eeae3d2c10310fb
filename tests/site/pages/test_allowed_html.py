"""A page is parsed once; its HTML holds nothing that runs, loads or passes for the site's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from markupsafe import Markup
from packaging.specifiers import SpecifierSet

from costlab.publish import claims_page, page, results_page
from costlab.record.options import LAB, LOCAL
from sitelab.pages import allowed_html, plain_title
from sitelab.pages.tree import Element, parse
from tests.site.parsed import apply_change

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "html",
    [
        '<p>a <a href="../x/#y">b</a> <a href="https://example.org/">c</a></p>',
        '<details class="question" open=""><summary>q</summary><p>a</p></details>',
        '<th style="text-align:right">1</th>',
        '<pre class="highlight"><code><span class="kn">x</span></code></pre>',
        '<div class="language-c++ highlight"></div>',
        '<div class="mermaid">flowchart LR\n  A["&lt;br/&gt;"]</div>',
        '<pre><code><a id="__codelineno-0-1" name="__codelineno-0-1"></a>x</code></pre>',
        '<img src="../assets/check.svg" alt="a">',
    ],
)
def test_what_pages_are_made_of_stays_as_it_is(html: str) -> None:
    inside = html if "<th" not in html else f"<table><tbody><tr>{html}</tr></tbody></table>"
    assert allowed_html.clean_html(inside) == inside


@pytest.mark.parametrize(
    ("html", "cleaned"),
    [
        ("<script>x()</script>a", "a"),
        ('<img src="x" onerror="y()">', '<img src="x">'),
        ('<a href="JaVaScRiPt:x()">a</a>', "<a>a</a>"),
        ('<a href="java&#10;script:x()">a</a>', "<a>a</a>"),
        ('<a href="data:text/html,x">a</a>', "<a>a</a>"),
        ('<img src="https://example.invalid/x.png">', "<img>"),
        ('<img src="//example.invalid/x.png">', "<img>"),
        ('<img src="\\\\example.invalid/x.png">', "<img>"),
        ('<td style="position:fixed">a</td>', "a"),
        ('<p style="position:fixed">a</p>', "<p>a</p>"),
        ('<svg onload="x()"><style>@import "x"</style></svg>a', "a"),
        ('<iframe src="x"></iframe><base href="x"><form action="x"><input></form>a', "a"),
        ('<div id="__config">{}</div>', "<div>{}</div>"),
        ('<a data-card="x" data-mark="y" class="citation">a</a>', "<a>a</a>"),
        ('<div class="citation-card citation-card--open">a</div>', "<div>a</div>"),
        ('<span class="verdict holds">a</span>', "<span>a</span>"),
        (
            '<div class="claims door"><p class="asked refuted">a</p></div>',
            '<div class="door"><p>a</p></div>',
        ),
        (
            '<details class="rows"><summary>a</summary></details>',
            "<details><summary>a</summary></details>",
        ),
        ('<p class="md-consent__overlay question">a</p>', '<p class="question">a</p>'),
        ('<p class="md-overlay md-search__inner md-dialog katex">a</p>', "<p>a</p>"),
    ],
)
def test_what_runs_loads_or_covers_is_left_out(html: str, cleaned: str) -> None:
    assert allowed_html.clean_html(html) == cleaned


def test_only_the_pages_that_the_bench_writes_may_mark_verdicts_and_measured_rows() -> None:
    html = '<p class="verdict holds">a</p>'
    assert allowed_html.clean_html(html, judged=True) == html
    lab = LAB.relative_to(ROOT).as_posix()
    for folder in (LAB, LOCAL):
        for stem in (claims_page.STEM, results_page.STEM):
            for language in ("en", "es"):
                path = (folder / page.name(stem, language)).relative_to(ROOT)
                assert allowed_html.is_bench_page(path.as_posix())
    for uri in (
        "experiments/01-scratch/CLAIMS.md",
        f"{lab}/note.md",
        f"{lab}/CLAIMS.md/note.md",
        f"docs/{lab}/CLAIMS.md",
    ):
        assert not allowed_html.is_bench_page(uri)


def test_a_title_is_text_however_it_came() -> None:
    assert plain_title.escape_once("<script>") == "&lt;script&gt;"
    assert plain_title.escape_once("&lt;script&gt;") == "&lt;script&gt;"
    assert plain_title.escape_once(["<b>"]) == "[&#x27;&lt;b&gt;&#x27;]"


def test_every_nh3_that_may_be_installed_escapes_markup_in_attributes() -> None:
    """0.3.6 writes a title's &lt;img&gt; as <img>: seen on every version from 0.3.0 on."""
    docs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (allowed,) = [SpecifierSet(entry[3:]) for entry in docs["docs"] if entry.startswith("nh3")]
    for version in ("0.3.0", "0.3.6"):
        assert version not in allowed
    (locked,) = re.findall(r"^nh3==(\S+)", (ROOT / ".ci/lock/test.txt").read_text(), re.MULTILINE)
    assert locked in allowed
    html = '<p title="&lt;img src=x&gt;">a</p>'
    assert allowed_html.clean_html(html) == html


@pytest.mark.parametrize(
    "html",
    [
        '<p title="&lt;b&gt; &quot;`&amp;">a &lt;b&gt; &amp;lt; <br>c<img src="x"></p>',
        "<ul><li>a<ul><li>b</li></ul></li></ul>text",
        "<pre><code>a\n\n  b</code></pre>",
    ],
)
def test_a_page_is_written_as_it_was_read(html: str) -> None:
    assert allowed_html.clean_html(html) == html
    assert parse(html).html() == html


def test_what_a_change_puts_in_is_text_unless_the_site_made_it() -> None:
    put = ["<b>", Markup("<i>x</i>"), Element("em", {"title": '"<'}, ["&"])]
    html = apply_change("<p>a</p>", lambda page: page.replace_texts(lambda _: put, frozenset()))
    assert html == '<p>&lt;b&gt;<i>x</i><em title="&quot;&lt;">&amp;</em></p>'
