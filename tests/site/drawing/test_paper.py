"""Paper is white and its letters dark, though the reader's screen has the dark palette."""

from __future__ import annotations

import re

import pytest

from tests.site.reader import OpenReader

PAGES = [
    pytest.param("theory/09-choosing-a-layout/", marks=pytest.mark.ci),
    pytest.param("experiments/36-compositions/MUSEUM/", marks=pytest.mark.ci),
]
# Red, green and blue of text and of what it stands on, where there is anything but the paper.
BRIGHT = """() => [...document.querySelectorAll(
  ".md-content :is(p, li, td, th, code, summary, figcaption)")].flatMap(one => {
  const bright = colour => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return 1 - a + a * (0.3 * r + 0.6 * g + 0.1 * b) / 255;
  };
  let ground = one;
  while (ground && /, 0\\)$/.test(getComputedStyle(ground).backgroundColor)) {
    ground = ground.parentElement;
  }
  const below = ground ? bright(getComputedStyle(ground).backgroundColor) : 1;
  const letters = bright(getComputedStyle(one).color);
  return below > 0.85 && letters < 0.65 ? [] : [[one.textContent.slice(0, 40), below, letters]];
})"""


@pytest.mark.parametrize("place", PAGES)
def test_what_is_printed_from_the_dark_palette_is_dark_on_white(
    open_reader: OpenReader, place: str
) -> None:
    reader = open_reader()
    page = reader.read(place)
    reader.use_scheme("dark")
    page.emulate_media(media="print", color_scheme="dark")
    reader.until("() => document.getAnimations().length === 0")  # colours fade over
    assert page.evaluate(BRIGHT) == []


@pytest.mark.ci
def test_the_claims_take_few_sheets_and_no_table_is_cut(open_reader: OpenReader) -> None:
    reader = open_reader()
    page = reader.read("experiments/35-allreduce-costs/CLAIMS/")
    pdf = page.pdf(format="A4", margin=dict.fromkeys(("top", "right", "bottom", "left"), "1.5cm"))
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 10  # 8 here; 30 in one column
    reader.read("theory/01-collectives/")
    page.emulate_media(media="print")
    reader.resize(680, 1000)  # a sheet's width without its margins
    cut = "all => all.filter(table => table.getBoundingClientRect().right > innerWidth).length"
    assert page.locator(".md-content table").evaluate_all(cut) == 0
