"""A block's diagram tells by colour what is a rank's own and what all ranks send."""

from __future__ import annotations

import pytest

from tests.site.reader import OpenReader

PARTS = """() => [...document.querySelectorAll("div.mermaid .node")].map(node => ({
  kind: ["own", "sent"].find(kind => node.classList.contains(kind)) || "",
  text: node.textContent.trim(),
  fill: getComputedStyle(node.querySelector("rect, path, polygon")).fill,
}))"""
TIMES = """() => Object.fromEntries(["task0", "task1"].map(kind =>
  [kind, getComputedStyle(document.querySelector(`div.mermaid rect.${kind}`)).fill]))"""


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.ci), "dark"])
def test_the_two_all_reduces_of_a_block_are_marked(open_reader: OpenReader, scheme: str) -> None:
    reader = open_reader()
    page = reader.read("experiments/35-reading-notes/synthesis/")
    reader.use_scheme(scheme)
    parts = page.evaluate(PARTS)
    sent_parts, own_parts = (
        [part for part in parts if part["kind"] == kind] for kind in ("sent", "own")
    )
    assert [part["text"] for part in sent_parts] == ["all-reduce 1", "all-reduce 2"]
    assert len(own_parts) == 6
    fills = {part["kind"]: part["fill"] for part in parts}
    assert len(set(fills.values())) == 3  # own, sent, and what every rank has alike
    times = page.evaluate(TIMES)
    assert times["task0"] == fills["sent"]
    assert times["task1"] not in fills.values()  # computing
