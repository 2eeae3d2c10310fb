"""A diagram's text reaches the page as text, whatever stands in its labels."""

from __future__ import annotations

from html import unescape

import pytest
from markdown import Markdown

from sitelab.drawing.diagrams import add_scripts, make_skeleton, render_fence
from sitelab.pages import allowed_html


@pytest.mark.parametrize(
    "label", ["two<br/>lines", "<img src=x onerror=y()>", "</div><script>y()</script>", "a & b"]
)
def test_markup_in_a_label_is_the_diagrams_not_the_pages(label: str) -> None:
    text = f'flowchart LR\n  A["{label}"]'
    html = allowed_html.clean_html(render_fence(text, "mermaid", "mermaid", {}, Markdown()))
    inside = html.removeprefix('<div class="mermaid">').removesuffix("</div>")
    assert "<" not in inside
    assert unescape(inside).strip() == text


def test_mermaid2_adds_its_script_to_the_page_and_changes_nothing_else() -> None:
    page = '<body><p title="a&amp;b">&lt;<div class="mermaid">x</div></body></html>'
    assert make_skeleton(page) == '<body><div class="mermaid"></div></body>'
    scripts = '<script src="m.js"></script><script>go()</script>'
    after = add_scripts(page, f'<body><div class="mermaid"></div>{scripts}</body>')
    assert after == page.replace("</body>", '<script src="m.js"></script></body>')
    assert make_skeleton("<body>mermaid</body>") == ""
    assert add_scripts("<body>mermaid</body>", "") == "<body>mermaid</body>"
