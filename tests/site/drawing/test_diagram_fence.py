"""A diagram's text reaches the page as text, whatever stands in its labels."""

from __future__ import annotations

from html import unescape

import pytest
from markdown import Markdown

from sitelab.drawing import diagrams
from sitelab.drawing.diagrams import add_scripts, make_skeleton, render_fence
from sitelab.pages import allowed_html
from sitelab.pages.tree import parse


@pytest.mark.parametrize(
    "label", ["two<br/>lines", "<img src=x onerror=y()>", "</div><script>y()</script>", "a & b"]
)
def test_markup_in_a_label_is_the_diagrams_not_the_pages(label: str) -> None:
    text = f'flowchart LR\n  A["{label}"]'
    html = allowed_html.clean_html(render_fence(text, "mermaid", "mermaid", {}, Markdown()))
    inside = html.removeprefix('<div class="mermaid">').removesuffix("</div>")
    assert "<" not in inside
    assert unescape(inside).strip() == text


def test_mermaid2_adds_its_scripts_address_to_the_page_and_changes_nothing_else() -> None:
    page = '<body><p title="a&amp;b">&lt;<div class="mermaid">x</div></body></html>'
    assert make_skeleton(page) == '<body><div class="mermaid"></div></body>'
    scripts = '<script src="m.js"></script><script>go()</script>'
    after = add_scripts(page, f'<body><div class="mermaid"></div>{scripts}</body>')
    address = '<template data-mermaid="m.js"></template>'
    assert after == page.replace("</body>", f"{address}</body>")
    assert make_skeleton("<body>mermaid</body>") == ""
    assert add_scripts("<body>mermaid</body>", "") == "<body>mermaid</body>"


DRAWN, NEW = "flowchart LR\n  a --> b", "flowchart LR\n  a --> c"
SVG = '<svg><marker id="ID-0"/><path marker-end="url(#ID-0)"/><text>ID-0</text></svg>'


def test_a_diagram_with_a_drawing_becomes_it_and_another_waits_for_mermaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawings = {diagrams.find_key(DRAWN): {"words": "a → b & c", "svg": SVG}}
    monkeypatch.setattr(diagrams, "read_drawings", lambda: drawings)
    fences = (render_fence(text, "", "mermaid", {}, Markdown()) for text in (DRAWN, NEW, DRAWN))
    page = parse("".join(fences))
    diagrams.embed_drawings(page, "es")
    html = page.html()
    assert make_skeleton(html) == '<body><div class="mermaid"></div></body>'
    assert html.count('role="img" aria-label="Diagrama"') == 2
    for number in (1, 2):  # each with ids of its own
        assert f'aria-describedby="diagram-{number}" data-search-exclude=""' in html
        assert f'<p id="diagram-{number}" hidden="">a → b &amp; c</p>' in html
        assert f'<marker id="diagram-{number}-0"/>' in html
        assert f"url(#diagram-{number}-0)" in html
    assert html.count("<text>ID-0</text>") == 2


def test_a_drawing_belongs_to_its_source_and_to_what_drew_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = diagrams.find_key(DRAWN)
    assert diagrams.find_key(f"{DRAWN}\n\n") == before != diagrams.find_key(NEW)
    monkeypatch.setattr(diagrams, "_find_tool", lambda: "another mermaid")
    assert diagrams.find_key(DRAWN) != before
