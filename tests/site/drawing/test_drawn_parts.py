"""Diagrams tell by colour what their parts are: own, sent, partial, backward, an axis."""

from __future__ import annotations

import pytest

from tests.site.figures.test_figures import PLACES
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


# The parts of a page's first diagram, and the colour of their words, or of their box or arrow.
COLOURS = """(meanings) => {
  const probe = document.body.appendChild(document.createElement("i"));
  const names = Object.fromEntries(meanings.map((name) =>
    [(probe.style.color = `var(--${name})`, getComputedStyle(probe).color), name]));
  const drawn = document.querySelector("div.mermaid.drawn");
  const all = (selector, text, property) => [...drawn.querySelectorAll(selector)].map((part) =>
    `${text(part).trim()}: ${names[getComputedStyle(part)[property]]}`);
  const beside = (box) => (box.closest(".node") || box.nextElementSibling).textContent;
  const tasks = [...drawn.querySelectorAll("[class*=taskText]")];
  return [
    ...all(".messageText", (text) => text.textContent, "fill"),
    ...all("rect:is(.actor, .note).own, .node rect", beside, "stroke"),
    ...all("rect.task", () => tasks.shift().textContent, "stroke"),
    ...all(".flowchart-link", () => "arrow", "stroke"),
  ];
}"""
DRAWN = {
    "ring": {"partial": "10|10 + 100|110 + 1000",
             "own": "1111|1111|1111|1110 + 1 = 1111|rank 0|rank 1|rank 2|rank 3"},
    "fsdp": {"sent": "G1|G1|G2|G2|G3|G3|R1|R2|R3", "forward": "F1|F2|F3", "backward": "B1|B2|B3"},
    "grid": {"own": "rank 5: tensor 1,data 0, stage 1", "axis-tensor": "rank 4|arrow",
             "axis-data": "rank 7|arrow", "axis-pipeline": "rank 1|arrow"},
}  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", DRAWN)
def test_sums_backwards_and_axes_have_their_colours(
    open_reader: OpenReader, name: str, scheme: str
) -> None:
    reader = open_reader()
    page = reader.read(PLACES[name])
    reader.use_scheme(scheme)
    wanted = [f"{part}: {colour}" for colour, parts in DRAWN[name].items()
              for part in parts.split("|")]  # fmt: skip
    assert sorted(page.evaluate(COLOURS, [*DRAWN[name]])) == sorted(wanted)
