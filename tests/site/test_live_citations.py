"""A citation on a page of the site: a permalink, a card; what is cited can't run anything."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from notelab.cited.outline import of_file
from sitelab import live_citations
from sitelab.pages.tree import parse
from sitelab.resolved_citations import (
    ResolvedCitation,
    enclosing_statements,
    make_permalink,
    open_offline_session,
    resolve_citations,
)

REPOSITORY = Path(__file__).parents[2]
CITED = ResolvedCitation(
    source="megatron",
    path="megatron/core/a.py",
    first=2,
    last=3,
    symbol="Layer.forward",
    commit="55ac7082517c3878ae653c07c09c534b8aed49f6",
    release="core_v0.16.1",
    licence="BSD-3-Clause",
    permalink="https://github.com/NVIDIA/Megatron-LM/blob/55ac/megatron/core/a.py#L2-L3",
    statements=(1, 4),
    text=("def f():", '    """A string', "    of two lines.", '    """'),
)
TEXT = "megatron/core/a.py:L2-L3"


def link(html: str, citation: ResolvedCitation, folder: Path, language: str = "en") -> str:
    page = parse(html)
    cards = live_citations.link_citations(
        page, {TEXT: citation}, language=language, url="es/experiments/lab/note/", mark="m"
    )
    live_citations.write_cards(cards, language, folder, {})
    return page.html()


@pytest.mark.parametrize(
    ("language", "lines", "licence"),
    [("en", "lines 2–3 in", "licence"), ("es", "líneas 2–3 en", "licencia")],
)
def test_a_citation_becomes_a_permalink_with_a_card_in_the_pages_language(
    tmp_path: Path, language: str, lines: str, licence: str
) -> None:
    html = link(f"<p>So <code>{TEXT}</code>.</p>", CITED, tmp_path, language)
    assert f'href="{CITED.permalink}"' in html
    address = html.split('data-card="')[1].split('"')[0]
    assert address.startswith("../../../../assets/citations/")
    shown = (tmp_path / "assets/citations" / address.rsplit("/", 1)[1]).read_text()
    assert f"{lines} <code>Layer.forward</code>" in shown
    assert "of two lines." in shown
    assert f"{licence} BSD-3-Clause" in shown


@pytest.mark.parametrize(("language", "lines"), [("en", "lines 2–3"), ("es", "líneas 2–3")])
def test_the_screen_has_file_and_lines_and_the_title_the_whole_path(
    language: str, lines: str, tmp_path: Path
) -> None:
    html = link(f"<code>{TEXT}</code>", CITED, tmp_path, language)
    assert f'title="megatron/core/a.py, {lines}"' in html
    folders = '<span class="citation-folders">megatron/core/</span>'
    name = f'<span class="citation-file">{folders}a.py:</span>2–3'
    assert f"<code>{name}</code>" in html
    package = msgspec.structs.replace(CITED, path="torch/fsdp/__init__.py", last=2)
    html = link(f"<code>{TEXT}</code>", package, tmp_path)
    assert "</span>fsdp/__init__.py:</span>2</code>" in html


def test_three_lines_either_way_stand_around_the_cited_ones() -> None:
    text = tuple(f"line_{number}" for number in range(1, 21))
    html = live_citations.render_card(
        msgspec.structs.replace(CITED, text=text, first=2, last=9, statements=(1, 20)), "en"
    )
    around = [int(n) for n in re.findall(r'citation-around" data-line="(\d+)"', html)]
    cited = [int(n) for n in re.findall(r'citation-line" data-line="(\d+)"', html)]
    assert around == [1, 10, 11, 12]  # none before the file's first line
    assert cited == list(range(2, 10))


def test_a_card_stands_open_below_the_paragraph_that_asks_for_it(tmp_path: Path) -> None:
    html = link(f'<p class="with-card">So <code>{TEXT}</code>.</p>', CITED, tmp_path)
    before, opened = html.split("</p>", 1)
    assert 'class="citation"' in before
    assert "of two lines." in opened
    assert f'data-copy="{CITED.permalink}" data-done="Copied">Copy link</button>' in opened
    unread = msgspec.structs.replace(CITED, text=None)
    html = link(f'<p class="with-card">So <code>{TEXT}</code>.</p>', unread, tmp_path)
    assert "citation-card" not in html


@pytest.mark.parametrize("attribute", ["title", "aria-label", "alt"])
def test_a_citation_in_an_attribute_stays_the_attributes_text(
    attribute: str, tmp_path: Path
) -> None:
    # An nh3 before 0.3.7 writes the first form; a browser reads both alike.
    for code in (f"<code>{TEXT}</code>", f"&lt;code&gt;{TEXT}&lt;/code&gt;"):
        html = link(f'<p {attribute}="{code}">x</p>', CITED, tmp_path)
        assert html == f'<p {attribute}="&lt;code&gt;{TEXT}&lt;/code&gt;">x</p>'


def test_what_the_site_made_carries_a_mark_that_the_page_cannot_know(tmp_path: Path) -> None:
    html = f'<p class="with-card"><code>{TEXT}</code></p>'
    assert link(html, CITED, tmp_path).count('data-mark="m"') == 2
    mark = live_citations.make_mark(html)
    assert mark != live_citations.make_mark(html.replace("<p", f'<p data-mark="{mark}"'))


def test_each_page_hides_cards_without_the_mark_of_its_own(site: Path) -> None:
    marks = set()
    for file in site.rglob("index.html"):
        html = file.read_text("utf-8")
        hidden = re.findall(r'card:not\(\[data-mark="(\w{32})"\]\)\{display:none!important\}', html)
        assert len(hidden) == 1, file
        assert {*re.findall(r' data-mark="(\w+)"', html)} <= {*hidden}, file
        marks |= {*hidden}
    assert len(marks) > 100


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("if \u202e) x", "if ⟨U+202E⟩) x"),
        ("\x1b[31mred", "⟨U+001B⟩[31mred"),
        ("a\rb", "a⟨U+000D⟩b"),
        ("a\u2028b\u200bc\u2066", "a⟨U+2028⟩b⟨U+200B⟩c⟨U+2066⟩"),
        ("\ttab, ñ, → and 漢字", "\ttab, ñ, → and 漢字"),
    ],
)
@pytest.mark.parametrize("path", ["a.py", "a.unknown"])
def test_what_cannot_be_seen_is_written_out_in_a_card(path: str, line: str, seen: str) -> None:
    hostile = msgspec.structs.replace(
        CITED, path=path, symbol=line, release=line, text=("def f():", line, "    return 0", "")
    )
    html = unescape(re.sub("<[^>]*>", "", live_citations.render_card(hostile, "en")))
    assert html.count(seen) == 3
    assert not re.search("[\x00-\x08\x0b-\x1f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", html)
    assert live_citations.render_card(hostile, "en").count("data-line=") == 4


def test_a_cited_line_of_a_megabyte_makes_a_small_card() -> None:
    long = msgspec.structs.replace(CITED, text=("x = '" + "<" * 1_000_000 + "'", "y", "z"), first=1)
    html = live_citations.render_card(long, "en")
    assert len(html) < 20_000
    assert "… (+999,606)" in html


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "8,940 more cited lines are left out."),
        ("es", "Se omiten otras 8.940 líneas citadas."),
    ],
)
def test_a_citation_of_many_lines_makes_a_small_card_that_counts_what_it_leaves_out(
    language: str, sentence: str
) -> None:
    text = tuple(f"line_{number} = {number}" for number in range(1, 10_001))
    many = msgspec.structs.replace(CITED, text=text, first=11, last=9010, statements=(1, 10_000))
    html = live_citations.render_card(many, language)
    numbers = [int(number) for number in re.findall(r'data-line="(\d+)"', html)]
    assert numbers == list(range(8, 71))  # three lines of context before, none after the cut
    assert len(html) < 20_000
    cut = html.split('<p class="citation-cut">')[1].split("</p>")[0]
    assert cut.startswith(sentence)
    assert f'href="{CITED.permalink}"' in cut
    whole = msgspec.structs.replace(many, last=70)
    assert "citation-cut" not in live_citations.render_card(whole, language)
    assert f'data-line="{70 + 3}"' in live_citations.render_card(whole, language)
    one_more = msgspec.structs.replace(many, last=71, permalink="")
    words = {"en": "1 more cited line is left out.", "es": "Se omite otra línea citada."}
    card = live_citations.render_card(one_more, language)
    assert f'<p class="citation-cut">{words[language]}</p>' in card


def test_lines_that_a_card_leaves_out_are_not_highlighted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        live_citations, "_highlight", lambda path, text: seen.append(len(text)) or text.split("\n")
    )
    text = ("x = 1",) * 100_000
    live_citations.render_card(
        msgspec.structs.replace(CITED, text=text, first=1, last=90_000, statements=(1, 100_000)),
        "en",
    )
    assert seen == [len("x = 1\n") * 60 - 1]


def test_lines_are_highlighted_as_part_of_their_file() -> None:
    # Line 2 begins a string that ends beyond the citation: alone it would not even be Python.
    assert '<span class="sd">' in live_citations.render_card(CITED, "en")


def test_lines_look_as_they_do_in_the_whole_file(tmp_path: Path) -> None:
    source = REPOSITORY / "tests/site/reader.py"  # with docstrings, comments, strings, decorators
    outline, text = of_file(source.name, source.read_bytes()), source.read_text().splitlines()
    whole = highlight("\n".join(text), PythonLexer(ensurenl=False), HtmlFormatter(nowrap=True))
    begun = set()
    for row, line in enumerate(whole.rstrip("\n").split("\n"), 1):
        rows = enclosing_statements(outline, len(text), row, row)
        begun.add(rows[0])
        here = msgspec.structs.replace(
            CITED, path=source.name, text=tuple(text), first=row, last=row, statements=rows
        )
        assert f'data-line="{row}">{line}\n</span>' in live_citations.render_card(here, "en"), row
    assert len(begun) > 20  # none is lexed from the file's beginning


@pytest.mark.parametrize(
    "html",
    [
        f"<pre><code>{TEXT}</code></pre>",
        f'<a href="x"><code>{TEXT}</code></a>',
        "<p><code>another/file.py:L1</code></p>",
    ],
)
def test_code_blocks_links_and_other_code_are_left_alone(html: str, tmp_path: Path) -> None:
    assert link(html, CITED, tmp_path) == html


def test_without_the_text_a_citation_is_a_plain_permalink(tmp_path: Path) -> None:
    html = link(f"<code>{TEXT}</code>", msgspec.structs.replace(CITED, text=None), tmp_path)
    assert f'href="{CITED.permalink}"' in html
    assert "data-card" not in html
    nowhere = msgspec.structs.replace(CITED, text=None, permalink="")
    assert "<a" not in link(f"<code>{TEXT}</code>", nowhere, tmp_path)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen += [tag, *(name for name, _ in attrs)]


@pytest.mark.parametrize("path", ["a.py", "a.unknown", "a.html"])
def test_nothing_that_is_cited_can_run(path: str) -> None:
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    hostile = ResolvedCitation(
        source=evil, path=evil + path, first=1, last=1, symbol=evil, commit=evil, release=evil,
        licence=evil, permalink="https://example.org/" + evil, statements=(1, 2),
        text=(evil, "</span></code>"),
    )  # fmt: skip
    for language in ("en", "es"):
        tags = Tags()
        tags.feed(live_citations.render_card(hostile, language))
        assert not {"script", "img", "onerror", "src"} & set(tags.seen)


def test_hosts_whose_form_is_unknown_get_no_permalink() -> None:
    assert make_permalink("file:///srv/x.git", "55ac", "a.py", 1, 1) == ""
    assert make_permalink("https://github.com/o/r", "55ac", "a.py", 1, 1).endswith(
        "/r/blob/55ac/a.py#L1"
    )


def test_every_citation_of_the_workbook_is_resolved() -> None:
    pages = resolve_citations(REPOSITORY, open_offline_session(), {})
    note = pages[REPOSITORY / "experiments/35-reading-notes/megatron-tp-layers.md"]
    assert len(note) >= 20
    first = note["megatron/core/tensor_parallel/layers.py:L134-L143"]
    assert first.symbol == "_initialize_affine_weight_gpu"
    assert first.permalink.endswith("/megatron/core/tensor_parallel/layers.py#L134-L143")
    assert first.text
    assert any("_initialize_affine_weight_gpu" in line for line in first.text)


def test_a_note_says_below_its_title_which_files_it_reads_at_which_pin(site: Path) -> None:
    again = msgspec.structs.replace(CITED, first=5)
    other = msgspec.structs.replace(CITED, source="pytorch", path="b<.py", release="")
    assert live_citations.describe_sources([CITED, again, other], "en") == (
        '<p class="goal">Reads a.py of megatron at core_v0.16.1. '
        "Reads b&lt;.py of pytorch at 55ac7082517c.</p>"
    )
    note = site / "es/experiments/35-reading-notes/megatron-tp-layers/index.html"
    assert re.search(r'</h1><p class="goal">Lee layers.py, ', note.read_text("utf-8"))
