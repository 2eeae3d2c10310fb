"""A citation's card opens within what the reader sees of the page, at every size of the window."""

from __future__ import annotations

import pytest

from tests.site.reader import OpenReader, Reader

NOTE = "experiments/35-reading-notes/megatron-tp-layers/"
# Focus a link that stands at the start, in the middle or at the end of the window.
FOCUS = """([number, block, links]) => {
  const link = document.querySelectorAll(links || "a.citation[data-card]")[number];
  document.activeElement.blur();
  link.scrollIntoView({block, behavior: "instant"});
  link.focus({preventScroll: true});
}"""
# How far the open card reaches over each edge of what is seen, and how much of it is seen.
PLACE = """() => {
  const card = document.querySelector("#citation-card");
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


BLOCKS = ("start", "center", "end")


def measure_cards(reader: Reader, first: int) -> list[dict[str, float]]:
    """Open every card of the page; return their places.

    The links are at the window's start, middle and end in turn, the first at `BLOCKS[first]`.
    """
    measured = []
    for number in range(reader.page.locator("a.citation[data-card]").count()):
        reader.page.evaluate(FOCUS, [number, BLOCKS[(first + number) % len(BLOCKS)]])
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
    # Over the six windows each card is twice at each end of a window and twice in its middle.
    cards = measure_cards(reader, [*WINDOWS].index(window))
    assert len(cards) == 21
    for number, card in enumerate(cards):
        assert card["over"] <= 0, (number, card)
        assert card["height"] >= min(card["whole"], 96), (number, card)
        assert card["wide"] == before, "a card makes no page wider"


TERMS = ".md-content a[href*='reference/glossary/#']"


@pytest.mark.parametrize("window", ["a telephone", "a telephone on its side", "a desk"])
@pytest.mark.parametrize("language", ["", "es/"])
def test_a_terms_card_says_its_meaning_within_the_window(
    open_reader: OpenReader, window: str, language: str
) -> None:
    width, height = WINDOWS[window]
    reader = open_reader(viewport={"width": width, "height": height})
    page = reader.read(f"{language}theory/01-collectives/")
    links = page.locator(TERMS)
    assert links.count() >= 5
    for number in range(links.count()):
        page.evaluate(FOCUS, [number, BLOCKS[number % len(BLOCKS)], TERMS])
        reader.until("() => document.querySelector('a[aria-expanded]')")
        card = page.evaluate(PLACE)
        assert card["over"] <= 0 and card["wide"] <= width, (number, card)
        assert card["height"] >= min(card["whole"], 60), (number, card)
    page.evaluate(FOCUS, [0, "center", TERMS])
    card = page.locator(".term-card")
    name, rest = card.locator("b").inner_text(), card.inner_text()
    assert name == "rank" and len(rest) > 60
    assert (
        card.locator("a").evaluate("a => a.href")
        == f"{reader.served}{language}theory/01-collectives/"
    )
    page.keyboard.press("Escape")
    assert not card.count()
    assert page.request.get(links.first.evaluate("a => a.href")).ok  # and it still leads there


def test_a_card_is_within_what_two_fingers_have_enlarged(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 844})
    reader.read(NOTE)
    session = reader.page.context.new_cdp_session(reader.page)
    session.send("Emulation.setPageScaleFactor", {"pageScaleFactor": 2})
    reader.until("() => window.visualViewport.scale === 2")
    for card in measure_cards(reader, 1):
        assert card["over"] <= 0, card


def test_an_open_card_stays_in_a_window_that_changes_its_size(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    reader.read(NOTE)
    reader.page.evaluate(FOCUS, [3, "center"])
    reader.until("() => document.querySelector('a.citation[aria-expanded]')")
    reader.resize(720, 450)
    box = reader.page.evaluate(PLACE)
    assert box["wide"] <= 720
    card_box = reader.page.locator(".citation-card:not(.citation-card--open)").bounding_box()
    assert card_box and card_box["x"] >= 0 and card_box["x"] + card_box["width"] <= 720
