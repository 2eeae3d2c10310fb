"""Every page of the built site, in both languages, in a real browser, at a telephone's width and a
desk's, in light and dark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site.places import Place, list_places
from tests.site.reader import Reader

# What axe calls serious or critical, a reader with a screen reader or poor sight calls a wall. Of
# what passes nothing is asked, nor how to select it: that takes axe longer than to look.
AXE = """async ([within, options]) => (await axe.run(
    within, {preload: false, resultTypes: ["violations"], selectors: false, ...options}))
  .violations.filter(found => ["serious", "critical"].includes(found.impact))
  .map(found => `${found.id}: ${found.nodes.length} × ${found.nodes[0].html.slice(0, 200)}`)"""
# Around the content every page has the same: it is read with three of them.
CONTENT = {"include": [".md-content"]}
UNSEEN = {"include": ["[data-unseen]", "figure"]}  # of diagrams: drawing/test_drawn_letters.py
EVERYTHING = {"exclude": [".nothing"]}
WITH_ALL_AROUND = ("", "es/", "reference/rules/N101/")
ROOM = {"runOnly": ["scrollable-region-focusable", "target-size"]}  # what a width changes
COLOUR = {"runOnly": ["color-contrast", "link-in-text-block"]}
# All other rules that can find something serious.
SHAPE_RULES = """colours => axe._audit.rules.filter(({id, enabled, impact, tags}) => enabled
  && ["serious", "critical"].includes(impact) && !tags.includes("experimental")
  && !colours.includes(id)).map(({id}) => id)"""
SIZES = {390: 844, 1440: 900}
AT_ONCE = "* {transition: none !important}"  # two palettes fade over into each other
# What is on a page. How its elements are nested, by tag and class, is what their colours depend on:
# the first ones of their kind, of all pages, get a mark.
SHOWN = r"""seen => {
  const known = new Set(seen), unseen = new Set();
  const walk = (element, above, marked) => {
    // A link is told by its colour if there are words around it.
    const inText = element.localName === "a" && [...element.parentElement.childNodes].some(
      node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const path = `${above}>${element.localName}.${element.getAttribute("class") || ""}${
      inText ? "+text" : ""}`;
    const first = !known.has(path);
    if (first) unseen.add(path);
    element.toggleAttribute("data-unseen", first && !marked);
    if (element.localName !== "svg")
      for (const child of element.children) walk(child, path, first);
  };
  walk(document.querySelector(".md-content"), "", false);
  // A name on two lines; browsers break behind a hyphen and "?", and where scrolling.js lets them,
  // in a table or a sentence that would be too wide.
  const broken = code => !/[\s,/?-]/.test(code.textContent.trim())
    && !code.querySelector("wbr") && code.getClientRects().length > 1;
  const isBroken = element => {  // a part of it begins below another part
    const parts = [...element.getClientRects()];
    return parts.some(one => one.top > Math.min(...parts.map(other => other.bottom)) - 1);
  };
  const count = selector => document.querySelectorAll(selector).length;
  return {
    unseen: [...unseen],
    cut: [...document.querySelectorAll(".md-content :not(pre) > code")]
      .filter(code => code.checkVisibility() && broken(code)).map(code => code.textContent),
    options: [...document.querySelectorAll(
      ".whole, [class^=joined]:has(.formula), [class^=joined]:has(.citation:not(td *))")]
      .filter(isBroken).map(option => option.textContent),
    broken: count("div.mermaid[data-error], .formula-error") + [...document.querySelectorAll(
      "div.formula")].filter(each => each.scrollWidth > each.clientWidth + 1).length,
    formulas: count(".formula .katex"),
    questions: count("details.question"),
    width: document.documentElement.scrollWidth,
  };
}"""


@pytest.fixture(scope="module")
def checked_nestings() -> dict[int, set[str]]:
    """The nestings of elements whose colours were checked, by width, on any page."""
    return {width: set() for width in SIZES}


# A laptop looks at a page of each kind; CI looks everywhere.
LOOKED_AT = (
    "",
    "experiments/35-reading-notes/megatron-tp-layers/",
    "experiments/35-reading-notes/synthesis/",
    "reference/rules/N201/",
    "theory/08-memory/",
)


def list_visits() -> list[Any]:
    """Return every page in both languages, as parameters."""
    return [
        pytest.param(
            place,
            id=place.address or "front",
            marks=[pytest.mark.ci] * (place.address not in LOOKED_AT),
        )
        for place in list_places()
    ]


def count_questions(place: Place) -> int:
    """Return how many questions a page shows; the page of cards has those of all pages."""
    home = place.address.removesuffix("cards/")
    if place.address != f"{home}cards/" or home not in ("", "es/"):
        return place.questions
    same_language = (each for each in list_places() if each.address.startswith("es/") == bool(home))
    return sum(each.questions for each in same_language)


@pytest.mark.parametrize("place", list_visits())
def test_a_page_is_quiet_drawn_accessible_and_fits_telephone_and_desk(
    reader: Reader, axe: str, checked_nestings: dict[int, set[str]], place: Place
) -> None:
    reader.forget()  # a page that is left isn't laid out again for a telephone
    page = reader.read(place.address)
    page.add_style_tag(content=AT_ONCE)
    page.evaluate(axe)
    shape = {"runOnly": page.evaluate(SHAPE_RULES, COLOUR["runOnly"])}
    assert len(shape["runOnly"]) > 50
    for width, height in SIZES.items():
        if width != min(SIZES):
            reader.resize(width, height)
        if place.diagrams:
            assert reader.wait_for_diagrams() == len(place.diagrams)
        shown = page.evaluate(SHOWN, [*checked_nestings[width]])
        assert shown["broken"] == 0
        assert shown["formulas"] == place.formulas
        assert shown["questions"] == count_questions(place)
        assert shown["width"] <= width
        assert shown["cut"] == shown["options"] == []
        around = place.address in WITH_ALL_AROUND
        rules = shape if around or width == min(SIZES) else ROOM
        assert page.evaluate(AXE, [EVERYTHING if around else CONTENT, rules]) == [], width
        if around or shown["unseen"]:
            checked_nestings[width] |= {*shown["unseen"]}
            for scheme in ("light", "dark"):
                reader.use_scheme(scheme)
                where = EVERYTHING if around else UNSEEN
                assert page.evaluate(AXE, [where, COLOUR]) == [], (width, scheme)
    assert reader.wrong == []


@pytest.mark.ci
def test_the_workbook_has_diagrams_formulas_and_questions_to_look_at() -> None:
    everywhere = list_places()
    assert sum(len(place.diagrams) for place in everywhere) >= 4
    assert sum(place.formulas for place in everywhere) >= 10
    assert sum(place.questions for place in everywhere) >= 10
