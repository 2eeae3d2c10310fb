"""The letters of every figure can be read where the site shows it, on a telephone too."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.site.drawing.drawn import WIDTHS
from tests.site.reader import OpenReader

SMALLEST = 11.0  # px on the screen
PAGES = {"": 1, "experiments/35-allreduce-costs/RESULTS/": 4}
SHOWN = """() => [...document.querySelectorAll(".md-content img")]
  .filter(image => image.offsetParent)
  .map(image => ({
    address: image.currentSrc || image.src,
    width: image.getBoundingClientRect().width,
    reached: image.parentElement.scrollWidth <= image.parentElement.clientWidth
      || image.parentElement.tabIndex === 0,
  }))"""


def smallest(svg: str) -> float:
    """Return the size of a figure's smallest letters, as a part of the figure's width."""
    box = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ?([\d.]+)px", svg)]
    assert box and sizes
    return min(sizes) / float(box[1])


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "dark"),
        pytest.param(1440, "light", marks=pytest.mark.ci),
        pytest.param(390, "light", marks=pytest.mark.ci),
        pytest.param(1440, "dark", marks=pytest.mark.ci),
    ],
)
def test_a_figures_letters_are_large_enough_and_the_keyboard_reaches_all_of_it(
    open_reader: OpenReader, site: Path, width: int, scheme: str
) -> None:
    size = {"width": width, "height": WIDTHS[width]}
    reader = open_reader(viewport=size, color_scheme=scheme)
    for address, count in PAGES.items():
        for language in ("", "es/"):
            page = reader.read(language + address)
            shown = page.evaluate(SHOWN)
            assert len(shown) == count, (address, shown)  # of each pair the palette's own
            for image in shown:
                svg = (site / urlsplit(image["address"]).path.lstrip("/")).read_text("utf-8")
                assert image["width"] * smallest(svg) >= SMALLEST, image
                assert image["reached"], image
            assert page.evaluate("document.documentElement.scrollWidth") <= width
