"""Paper is white and its letters dark, though the reader's screen has the dark palette."""

import re

import pytest

from tests.site.reader import OpenReader

PAGES = [
    "theory/01-collectives/",
    "theory/09-choosing-a-layout/",
    "experiments/35-allreduce-costs/CLAIMS/",
    "experiments/36-compositions/MUSEUM/",
]
# Red, green and blue of text and of what it stands on, where there is anything but the paper.
BRIGHT = """() => [...document.querySelectorAll(
  ".md-content :is(p, li, td, th, code, strong, summary, figcaption)")].flatMap(one => {
  const bright = colour => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return 1 - a + a * (0.3 * r + 0.6 * g + 0.1 * b) / 255;
  };
  let ground = one;
  while (ground && /, 0\\)$/.test(getComputedStyle(ground).backgroundColor)) {
    ground = ground.parentElement;
  }
  const below = ground ? bright(getComputedStyle(ground).backgroundColor) : 1;
  const letters = Math.max(
    ...[null, "::before"].map(part => bright(getComputedStyle(one, part).color)));
  return below > 0.85 && letters < 0.65 ? [] : [[one.textContent.slice(0, 40), below, letters]];
})"""


@pytest.mark.ci
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
def test_the_claims_take_few_sheets(open_reader: OpenReader) -> None:
    reader = open_reader()
    page = reader.read("experiments/35-allreduce-costs/CLAIMS/")
    pdf = page.pdf(format="A4", margin=dict.fromkeys(("top", "right", "bottom", "left"), "1.5cm"))
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 12  # 30 as cards
    page.emulate_media(media="print")
    sizes = "all => Math.min(...all.map(one => parseFloat(getComputedStyle(one).fontSize)))"
    assert page.locator(".claims td:not(:empty)").evaluate_all(sizes) * 0.75 >= 8  # points


@pytest.mark.ci
@pytest.mark.parametrize(
    "place",
    [
        *PAGES[:2],
        "es/theory/03-sharded-data-parallelism/",
        "theory/08-memory/",
        "experiments/35-allreduce-costs/RESULTS/",
        "reference/kernels/",
        "es/reference/audit/",
    ],
)
def test_no_table_is_cut_on_a_sheet(open_reader: OpenReader, place: str) -> None:
    reader = open_reader()
    page = reader.read(place)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    reader.resize(673, 1000)  # a sheet's width without its margins
    cut = "all => all.filter(table => table.getBoundingClientRect().right > innerWidth + 1).length"
    assert page.locator(".md-content table").evaluate_all(cut) == 0


BELOW = """() => [...document.querySelectorAll("details:is(.example, .question, .answers)")]
  .flatMap(fold => [...fold.children].filter(child => child.matches("p, ul, ol, div:not([class])")))
  .filter(child => !child.matches(".recall-verdict")).length"""


@pytest.mark.ci
@pytest.mark.parametrize(
    "place", ["theory/01-collectives/", "es/theory/04-pipelines-and-the-grid/"]
)
def test_answers_are_printed_at_the_end_and_stand_in_their_place_afterwards(
    open_reader: OpenReader, place: str
) -> None:
    reader = open_reader(viewport={"width": 1440, "height": 900})
    page = reader.read(place)
    article = page.locator("article")
    words = "article => article.textContent.replace(/\\s/g, '')"  # spaces between blocks may move
    text, below = article.evaluate(words), page.evaluate(BELOW)
    assert below > 10
    for _ in range(2):  # a second printing is like the first
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        answers = page.locator("article > .paper-answers:last-child")
        assert page.evaluate(BELOW) == 0
        titles = answers.locator("p > strong:only-child").all_inner_texts()
        assert page.locator("article code wbr").count() > 10
        questions = page.locator("details.question > summary").all_inner_texts()
        assert {question.split("\n")[-1] for question in questions} <= {*titles}
        assert sum(title.split()[0] in ("Answer", "Respuesta") for title in titles) >= 4
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert article.evaluate(words) == text and page.evaluate(BELOW) == below
        assert page.locator("article code wbr").count() == 0


@pytest.mark.ci
@pytest.mark.parametrize(
    ("place", "limit"),
    [("01-collectives", 9), ("08-memory", 10), ("09-choosing-a-layout", 10)],  # were 10, 12, 11
)
def test_no_sheet_is_half_empty(open_reader: OpenReader, place: str, limit: int) -> None:
    pdf = open_reader().read(f"theory/{place}/").pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) <= limit


def test_a_figure_prints_its_settings_and_nothing_to_press(open_reader: OpenReader) -> None:
    page = open_reader().read("theory/08-memory/")
    page.emulate_media(media="print")
    figure = page.locator("#figure-memory")
    seen = "all => all.filter(one => one.checkVisibility()).length"
    assert figure.locator("button").evaluate_all(seen) == 0
    assert figure.locator(".play-control [name=model]").is_visible()
    assert figure.locator(".play-control [name=stages]").evaluate("one => one.value") == "8"
    folds = figure.locator(".play-fold")
    setting = "field => { field.value = 95; field.dispatchEvent(new Event('input')); }"
    folds.locator("[name=layers]").evaluate(setting)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert folds.count() == 3 and folds.evaluate_all(seen) == 1  # the one that was used
    folded = figure.locator(".play-more tr:not([hidden])")
    assert folded.count() >= 20 and folded.evaluate_all(seen) == folded.count()


def test_the_grid_prints_its_ranks(open_reader: OpenReader) -> None:
    page = open_reader().read("theory/04-pipelines-and-the-grid/")
    page.emulate_media(media="print")
    assert page.locator("#figure-grid button.grid-rank >> visible=true").count() == 8
    assert not page.locator("#figure-grid .play-try").is_visible()
