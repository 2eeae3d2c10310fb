"""A picture can be seen alone: by a click and by the keyboard; Escape and a click close it."""

from __future__ import annotations

import pytest

from tests.site.reader import OpenReader


@pytest.mark.parametrize(
    "address",
    [
        "theory/02-tensor-parallelism/",
        pytest.param("experiments/35-allreduce-costs/RESULTS/", marks=pytest.mark.ci),
    ],
)
def test_a_picture_is_enlarged_and_closed(open_reader: OpenReader, address: str) -> None:
    reader = open_reader()
    page = reader.read(address)
    picture = page.locator("[data-enlarge]").first
    small = picture.bounding_box()
    picture.focus()
    page.keyboard.press("Enter")
    shown = page.locator("dialog.enlarged[open]")
    assert shown.get_attribute("aria-label")
    large = shown.locator("img, svg:not(.narrow)").first.bounding_box()
    assert small and large
    assert large["width"] * large["height"] > small["width"] * small["height"]
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")  # `close` arrives after the key
    assert picture.evaluate("picture => picture === document.activeElement")
    picture.click()
    page.locator("dialog.enlarged").click(position={"x": 5, "y": 5})
    page.locator("dialog").wait_for(state="detached")
