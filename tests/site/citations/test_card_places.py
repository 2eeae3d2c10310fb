"""A citation's card opens within what the reader sees of the page, at every size of the window."""

from __future__ import annotations

import pytest

from tests.site.reader import OpenReader, Reader

NOTE = "experiments/35-reading-notes/megatron-tp-layers/"
# Focus a link that stands at the start, in the middle or at the end of the window.
FOCUS = """([number, block]) => {
  const link = document.querySelectorAll("a.citation[data-card]")[number];
  document.activeElement.blur();
  link.scrollIntoView({block, behavior: "instant"});
  link.focus({preventScroll: true});
}"""
# How far the open card reaches over each edge of what is seen, and how much of it is seen.
PLACE = """() => {
  const card = document.querySelector(".citation-card:not(.citation-card--open)");
  if (!card) return null;
  const box = card.getBoundingClientRect(), view = window.visualViewport;
  const header = document.querySelector(".md-header").getBoundingClientRect().bottom;
  return {
    over: Math.max(
      view.offsetLeft - box.left, box.right - view.offsetLeft - view.width,
      Math.max(view.offsetTop, header) - box.top, box.bottom - view.offsetTop - view.height,
    ),
    height: box.height, whole: card.scrollHeight, wide: document.documentElement.scrollWidth,
  };
}"""
WINDOWS = {
    "a telephone": (390, 844),
    "a telephone on its side": (844, 390),
    "a telephone at 200 %": (195, 422),
    "a tablet": (768, 1024),
    "a desk": (1440, 900),
    "a desk at 200 %": (720, 450),
}


def measure_cards(reader: Reader, block: str) -> list[dict[str, float]]:
    """Open every card of the page, with its link at `block` of the window; return their places."""
    measured = []
    for number in range(reader.page.locator("a.citation[data-card]").count()):
        reader.page.evaluate(FOCUS, [number, block])
        reader.until("() => document.querySelector('a.citation[aria-expanded]')")
        measured.append(reader.page.evaluate(PLACE))
    return measured


@pytest.mark.parametrize("window", WINDOWS)
def test_every_card_of_a_note_is_seen_whole_within_the_window(
    open_reader: OpenReader, window: str
) -> None:
    width, height = WINDOWS[window]
    reader = open_reader(viewport={"width": width, "height": height})
    reader.read(NOTE)
    before = reader.page.evaluate("document.documentElement.scrollWidth")
    for block in ("start", "center", "end"):
        cards = measure_cards(reader, block)
        assert len(cards) == 21
        for card in cards:
            assert card["over"] <= 0, (block, card)
            assert card["height"] >= min(card["whole"], 96), (block, card)
            assert card["wide"] == before, "a card makes no page wider"


def test_a_card_is_within_what_two_fingers_have_enlarged(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 844})
    reader.read(NOTE)
    session = reader.page.context.new_cdp_session(reader.page)
    session.send("Emulation.setPageScaleFactor", {"pageScaleFactor": 2})
    reader.until("() => window.visualViewport.scale === 2")
    for card in measure_cards(reader, "center"):
        assert card["over"] <= 0, card


def test_an_open_card_stays_in_a_window_that_changes_its_size(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    reader.read(NOTE)
    reader.page.evaluate(FOCUS, [3, "center"])
    reader.until("() => document.querySelector('a.citation[aria-expanded]')")
    reader.resize(720, 450)
    reader.page.evaluate("() => new Promise(done => requestAnimationFrame(() => done()))")
    box = reader.page.evaluate(PLACE)
    assert box["wide"] <= 720
    card_box = reader.page.locator(".citation-card:not(.citation-card--open)").bounding_box()
    assert card_box and card_box["x"] >= 0 and card_box["x"] + card_box["width"] <= 720
