"""The drawings of the workbook's diagrams: all of them, small, and nothing that runs or loads."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest

from pages import diagrams
from sitelab.drawing.diagrams import DRAWINGS, find_key, read_drawings

SEQUENCE = (
    "sequenceDiagram\n  participant a as rank 0\n  participant b as rank 1\n  a->>b: 10 + 1\n"
)
KINDS = {"flowchart", "gantt", "sequence"}


def draw_alone(key: str, source: str) -> dict[str, str]:
    """Draw in a thread: another test may hold a browser, and playwright has one loop a thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(diagrams.draw, {key: source}).result()[key]


def test_every_diagram_has_its_drawing_a_missing_one_is_drawn_and_no_other_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed, sources = read_drawings(), diagrams.list_sources()
    assert list(committed) == list(sources)
    monkeypatch.setattr(diagrams, "list_sources", lambda: sources)
    gone, *rest = committed
    drawn_keys: list[str] = []

    def draw(sources: dict[str, str]) -> dict[str, dict[str, str]]:
        drawn_keys.extend(sources)
        return {key: {"words": "drawn", "svg": "<svg/>"} for key in sources}

    monkeypatch.setattr(diagrams, "draw", draw)
    stale = {"stale": committed[gone]}
    monkeypatch.setattr(diagrams, "read_drawings", lambda: stale | {k: committed[k] for k in rest})
    ((path, text),) = diagrams.render()
    assert path == DRAWINGS and drawn_keys == [gone]
    assert json.loads(text) == committed | {gone: {"words": "drawn", "svg": "<svg/>"}}


def test_a_drawing_is_small_has_no_colour_of_its_own_and_names_only_its_own_parts() -> None:
    for key, drawing in read_drawings().items():
        root = ElementTree.fromstring(drawing["svg"])
        ids = {element.get("id") for element in root.iter() if element.get("id")}
        assert set(re.findall(r"url\(#([^)]*)\)", drawing["svg"])) == ids, key
        assert all(str(name).startswith("ID-") for name in ids), key
        assert not re.search(r"<style|fill=|stroke=|href|\bon\w+=|#[0-9a-f]{3}", drawing["svg"]), (
            key
        )
        assert len(drawing["svg"]) < 16_000, key
        assert root.get("data-kind") in KINDS, key
        letters = {word for text in root.iter() for word in (text.text or "").split()}
        assert len(letters) > 3 and drawing["words"], key


@pytest.mark.ci
def test_mermaid_draws_a_diagram_again_with_the_same_words() -> None:
    sources = diagrams.list_sources()
    for kind in KINDS:
        key = next(
            key for key, text in sources.items() if f'"{kind}"' in read_drawings()[key]["svg"]
        )
        drawn = draw_alone(key, sources[key])
        committed = read_drawings()[key]
        assert drawn["words"] == committed["words"]
        texts = [re.findall(r">([^<]+)<", drawing["svg"]) for drawing in (drawn, committed)]
        assert sorted(texts[0]) == sorted(texts[1])


@pytest.mark.ci
def test_a_drawn_message_keeps_its_arrow_and_its_words() -> None:
    key = find_key(SEQUENCE)
    drawing = draw_alone(key, SEQUENCE)
    assert drawing["words"] == "rank 0 → rank 1: 10 + 1"
    assert re.search(
        r'<line [^>]*marker-end="url\(#ID-\d\)"[^>]*class="messageLine0"', drawing["svg"]
    )
