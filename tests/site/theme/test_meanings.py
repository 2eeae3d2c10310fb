"""Figures and diagrams take their colours from one table, `meanings.css`."""

from __future__ import annotations

import re
from pathlib import Path

ASSETS = Path(__file__).parents[3] / "docs/assets"
TABLE = (ASSETS / "stylesheets/meanings.css").read_text("utf-8")
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgba?|hsla?|oklch|lab)\([^;]*")
# A hue for each group of the grid, with letters that can be read on all of them.
LISTED = {"hsl(var(--hue) 60% 40%)", "hsl(var(--hue) 60% 85%)", "#1a1a1a"}
STYLES = ("diagrams.css", "figures.css", "figures-moving.css", "figures-parallel.css")


def test_no_figure_has_a_colour_that_is_not_in_the_table() -> None:
    files = [
        *(ASSETS / "stylesheets" / name for name in STYLES),
        *(ASSETS / "javascripts/figures").glob("*.js"),
    ]
    assert len(files) > 10
    others = {
        (file.name, colour)
        for file in files
        for colour in COLOUR.findall(file.read_text("utf-8"))
        if colour not in LISTED
    }
    assert others == set()


def test_a_link_has_the_colour_of_its_meaning() -> None:
    styles = (ASSETS / "stylesheets/figures.css").read_text("utf-8")
    for link in ("gloo", "shared-memory"):
        assert re.findall(rf"\.play-dot\.play-{link} {{ stroke: (.*?);", styles) == [
            f"var(--{link})"
        ]
        assert re.findall(rf"\.play-key\.play-{link} {{ background: (.*?);", styles) == [
            f"var(--{link})"
        ]


def test_both_palettes_have_each_meaning() -> None:
    light, dark = (set(re.findall(r"(--[\w-]+): #", part)) for part in TABLE.split("@media screen"))
    assert light - dark == {"--fault"}  # the same red on both
    assert dark <= light
