"""The front page: one figure, two doors, a card that stands open; and the menu's four rooms."""

import pytest

from shardlab.proofs import formulas
from tests.site.reader import OpenReader

PHONE = {"width": 390, "height": 844}
TUTOR = {"tokens": 512, "hidden": 128, "ranks": 2, "itemsize": 4}  # of theory 02
LETTERS = """svg => [...svg.querySelectorAll("text")].map(text => {
  const box = text.getBoundingClientRect();
  const size = parseFloat(getComputedStyle(text).fontSize);
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return {text: text.textContent, size: size * scale, left: box.left, right: box.right};
})"""
HEAVY = "all => all.filter(a => getComputedStyle(a).fontWeight >= 600).map(a => a.innerText)"
HEIGHTS = "all => all.map(step => step.offsetHeight)"  # a number's circle is 34 px
FILL = "svg => getComputedStyle(svg.querySelector('.fig-a')).fill"


@pytest.mark.parametrize("language", ["", pytest.param("es/", marks=pytest.mark.ci)])
def test_the_figure_is_legible_on_a_telephone_and_follows_the_palette(
    open_reader: OpenReader, language: str
) -> None:
    reader = open_reader(viewport=PHONE)
    page = reader.read(language)
    figure = page.locator(".hero svg[aria-label]")
    letters = figure.evaluate(LETTERS)
    assert len(letters) == 18
    for letter in letters:
        assert letter["size"] >= 11, letter
        assert letter["left"] >= 0 and letter["right"] <= PHONE["width"], letter
    reader.use_scheme("light")
    light = figure.evaluate(FILL)
    reader.use_scheme("dark")
    assert figure.evaluate(FILL) != light


@pytest.mark.parametrize("language", ["", "es/"])
def test_the_first_screen_says_what_it_is_and_has_the_picture(
    open_reader: OpenReader, language: str
) -> None:
    """What one does here, where to begin and the figure are seen before anything is scrolled."""
    for viewport in ({"width": 1440, "height": 900}, PHONE):
        page = open_reader(viewport=viewport).read(language)
        foot = "element => element.getBoundingClientRect().bottom"
        head = "element => element.getBoundingClientRect().top"
        assert page.locator(".md-button").last.evaluate(foot) < viewport["height"]
        figure = page.locator(".hero svg[aria-label]")
        assert figure.evaluate(head) < viewport["height"] - 100
    page = open_reader(viewport={"width": 1440, "height": 900}).read(language)
    ways = page.locator(".hero-ways li")
    assert ways.count() == 3
    assert max(way.evaluate(foot) for way in ways.all()) < 900


def test_what_the_figure_says_is_what_the_tutors_block_sends(open_reader: OpenReader) -> None:
    reader = open_reader(viewport=PHONE)
    text = reader.read("").locator(".hero svg[aria-label]").text_content() or ""
    (call, count), *further_calls = formulas.block(**TUTOR).forward.items()
    assert text.count("all-reduce") == count and not further_calls and call.op == "all_reduce"
    assert text.count(f"{call.wire // 1024} KiB each way") == count
    assert text.count("2 of 4 heads") == text.count("256 of 512") == TUTOR["ranks"]


@pytest.mark.parametrize(
    ("language", "rooms"),
    [
        pytest.param("", ["Learn", "Labs", "Results", "Reference"], marks=pytest.mark.ci),
        ("es/", ["Aprender", "Laboratorios", "Resultados", "Referencia"]),
    ],
)
def test_two_doors_four_rooms_and_the_way_on(
    open_reader: OpenReader, language: str, rooms: list[str]
) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    page = reader.read(language)
    assert page.locator(".md-tabs__link:visible").all_inner_texts() == rooms
    assert not page.locator(".md-sidebar:visible").count()  # no menu but the tabs
    doors = [link.evaluate("a => a.href") for link in page.locator(".md-button").all()]
    here = reader.served + language
    assert doors == [f"{here}theory/01-collectives/", f"{here}labs/00-ffn-by-hand/"]
    assert all(height >= 34 for height in page.locator(".path li").evaluate_all(HEIGHTS))
    card = page.locator(".with-card + .citation-card--open")
    assert card.locator(".citation-line:not(.citation-around)").count() == 4
    for button in (page.locator(".md-footer__link--next"),) * 2:  # through the path, page by page
        button.click()
    assert page.url == f"{here}theory/02-tensor-parallelism/"
    page.locator(".md-footer__link--prev").click()
    assert page.url == f"{here}theory/01-collectives/"
    page = reader.read(f"{language}labs/01-three-d/")  # with all its style
    assert page.locator(".md-tabs__link").evaluate_all(HEAVY) == rooms[1:2]


def test_a_card_copies_its_permalink(open_reader: OpenReader) -> None:
    reader = open_reader(permissions=["clipboard-read", "clipboard-write"])
    page = reader.read("")
    button = page.locator(".citation-card--open .citation-copy")
    button.click()
    reader.until("() => document.querySelector('.citation-copy').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == button.get_attribute("data-copy")
    assert copied.endswith("layers.py#L1294-L1297")


def test_on_paper_a_citation_has_its_whole_path(open_reader: OpenReader) -> None:
    reader = open_reader(viewport=PHONE)
    page = reader.read("")
    link = page.locator(".with-card a.citation")
    # In a sentence the file's name is for screen readers: it stands apart.
    assert link.inner_text().split() == ["layers.py:", "1294–1297"]
    page.emulate_media(media="print")
    assert link.inner_text() == "megatron/core/tensor_parallel/layers.py:1294–1297"
