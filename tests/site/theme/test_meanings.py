"""Figures and diagrams take their colours from one table, `meanings.css`."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


# Meanings that are next to each other, most of them in one figure.
TOGETHER = (
    "weights gradients optimizer activations forward backward",
    "weights gradients sent forward backward",
    "axis-tensor axis-context axis-data axis-pipeline forward backward own",
)
# What people see who lack the cones for red or for green (Machado et al. 2009), and all others;
# then light to cones, and cones to Oklab, where colours 0.02 apart are told apart side by side.
EYES = np.array([
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
])  # fmt: skip
CONES, OKLAB = np.array([
    ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300)),
    ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087)),
])  # fmt: skip


def measure_light(colour: str) -> Any:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_meanings_are_told_apart_and_letters_on_them_can_be_read(scheme: str) -> None:
    part = TABLE.split("@media screen")[scheme == "slate"]
    light = {key: measure_light(colour)
             for key, colour in re.findall(r"--([\w-]+): (#\w{6});", part)}  # fmt: skip
    look = (ASSETS / "stylesheets/look.css").read_text("utf-8")
    paper = re.findall(r"--md-default-bg-color: (#\w{6});", look)[scheme == "slate"]
    grey = np.array([0.2126, 0.7152, 0.0722])
    for names, least in zip(TOGETHER, (3, 4.5, 4.5), strict=True):  # letters stand on the others
        for name in names.split():
            pair = sorted(grey @ each + 0.05 for each in (light[name], measure_light(paper)))
            assert pair[1] / pair[0] > least, name
    solid = " ".join(name for name in light if not name.endswith("-soft"))
    views = [(names, eye, 0.03) for names, eye in itertools.product(TOGETHER, EYES)]
    for names, eye, least in (*views, (solid, EYES[0], 0.04)):
        places = {name: OKLAB @ np.cbrt(CONES @ np.maximum(0, eye @ light[name]))
                  for name in names.split()}  # fmt: skip
        for one, other in itertools.combinations(places, 2):
            assert np.linalg.norm(places[one] - places[other]) > least, (one, other)
        if "backward" in places and eye is EYES[0]:  # a tint of its own, not only another light
            assert np.linalg.norm((places["forward"] - places["backward"])[1:]) > 0.07


def test_both_palettes_have_each_meaning() -> None:
    light, dark = (set(re.findall(r"(--[\w-]+): #", part)) for part in TABLE.split("@media screen"))
    assert light - dark == {"--fault"}  # the same red on both
    assert dark <= light
