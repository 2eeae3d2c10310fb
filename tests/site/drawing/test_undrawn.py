"""Mermaid is fetched for a diagram without a drawing, once that diagram nears the window."""

from __future__ import annotations

from typing import Any

from tests.site.reader import OpenReader

PLACE = "theory/04-pipelines-and-the-grid/"
FAR = '<div style="height: 5000px"></div>'
DIAGRAM = '<div class="mermaid">flowchart LR\n  own["my own"]:::own --> other</div>'
ADDRESS = '<template data-mermaid="../../assets/javascripts/mermaid.min.js"></template>'


def test_mermaid_waits_for_an_undrawn_diagram_to_come_near(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    fetched: list[str] = []
    reader.page.on("request", lambda request: fetched.append(request.url))

    def add_diagram(route: Any) -> None:
        html = route.fetch().text().replace("</article>", f"{FAR}{DIAGRAM}</article>{ADDRESS}")
        route.fulfill(body=html, content_type="text/html")

    reader.page.route(f"**/{PLACE}", add_diagram)
    page = reader.read(PLACE)
    page.wait_for_timeout(500)
    assert page.locator("div.mermaid.drawn svg").count() == 1
    assert not [url for url in fetched if "mermaid" in url]
    assert reader.wait_for_diagrams() == 2
    nodes = page.locator("div.mermaid:not(.drawn) .node").all_text_contents()
    assert [node.strip() for node in nodes] == ["my own", "other"]
    assert len([url for url in fetched if "mermaid" in url]) == 1
