"""Opening a page makes the browser style its elements a few times, not with every change.

Material's own start styles all elements about four times; on a slow processor each costs 50 ms.
"""

from __future__ import annotations

from typing import Any

from tests.site.reader import OpenReader

MOST = 7  # times that an element is styled, on average; measured: 4.7, and 9.3 with a wide :has()


def test_no_change_styles_the_whole_page_again(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 844})
    devtools = reader.page.context.new_cdp_session(reader.page)
    events: list[dict[str, Any]] = []
    ended: list[Any] = []
    devtools.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    devtools.on("Tracing.tracingComplete", lambda _: ended.extend([True]))
    devtools.send("Tracing.start", {"categories": "devtools.timeline"})
    page = reader.read("theory/04-pipelines-and-the-grid/")
    page.wait_for_load_state("networkidle")
    elements = page.evaluate("document.querySelectorAll('*').length")
    devtools.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(10)
    styled = [
        event["args"].get("elementCount", 0)
        for event in events
        if event["name"] == "UpdateLayoutTree"
    ]
    assert 1 <= sum(styled) / elements <= MOST
