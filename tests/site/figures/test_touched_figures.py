"""A figure on a telephone: what is touched, what stays in sight, what can be read, what is said."""

from __future__ import annotations

from typing import Any

import pytest

from shardlab.pipeline.schedule import by_name
from sitelab.figures import schedule
from sitelab.figures.embed import load_words
from tests.site.figures.test_figures import PLACES, TURN
from tests.site.reader import TWO_FRAMES, OpenReader, Reader

# Settings with which each figure is at its largest.
LARGEST: dict[str, dict[str, Any]] = {
    "collective": {}, "dispatch": {"ranks": 8, "top": 4},
    "fsdp": {"guard": "nothing", "units": 8, "collective": 6},
    "grid": {"tensor": 4, "data": 8}, "memory": {"tensor": 7},
    "memory-step": {"microBatches": 16, "model": "175B"}, "ring": {"ranks": 8},
    "schedule": {"kind": "interleaved-4", "stages": 8, "microBatches": 16},
    "zero": {"ranks": 64}, "zigzag": {"ranks": 8},
}  # fmt: skip
FINGER, LETTER = 40, 12  # px: how high a thing to touch is, how large a letter


@pytest.fixture(params=["", "es/"])
def telephone(open_reader: OpenReader, request: Any) -> tuple[Reader, str]:
    return open_reader(viewport={"width": 390, "height": 664}), request.param


def turn(reader: Reader, place: str, name: str, settings: dict[str, Any]) -> Any:
    """Open a page, turn a figure's controls one after the other; return what it shows last."""
    page = reader.read(place)
    return page.evaluate(TURN, [name, [[setting] for setting in settings.items()]])


SMALL = """([name, finger]) => [...document.querySelectorAll(`#figure-${name} :is(button, select,
  input, summary):not(.grid-rank)`)]
  .map(part => part.type === "checkbox" ? part.parentElement : part)
  .filter(part => part.checkVisibility() && part.getBoundingClientRect().height < finger)
  .map(part => part.outerHTML)"""
LETTERS = """([name, letter]) => [...document.querySelectorAll(`#figure-${name} *`)].filter(
  part => !part.closest("svg, script, select") && part.checkVisibility()
    && [...part.childNodes].some(child => child.nodeType === 3 && child.data.trim())
    && parseFloat(getComputedStyle(part).fontSize) < letter).map(part => part.outerHTML)"""
# Where the picture is once the figure's last open control is at the window's lower edge.
STAYS = """name => {
  const figure = document.querySelector(`#figure-${name}`);
  const control = [...figure.querySelectorAll(".play-controls > .play-control")].at(-1);
  const below = control.getBoundingClientRect().bottom;
  scrollTo({top: scrollY + below - innerHeight + 10, behavior: "instant"});
  const place = figure.querySelector(".play-stay").getBoundingClientRect();
  const header = document.querySelector(".md-header").getBoundingClientRect();
  return [header.bottom, place.top, place.bottom, control.getBoundingClientRect().top];
}"""


@pytest.mark.parametrize("name", LARGEST)
def test_a_figure_at_its_largest_is_touched_read_and_seen_with_its_controls(
    telephone: tuple[Reader, str], name: str
) -> None:
    reader, home = telephone
    turn(reader, home + PLACES[name], name, LARGEST[name])
    assert reader.page.evaluate(SMALL, [name, FINGER]) == []
    assert reader.page.evaluate(LETTERS, [name, LETTER]) == []
    header, top, bottom, control = reader.page.evaluate(STAYS, name)
    assert header <= top + 1
    assert bottom <= control
    assert reader.page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("home", ["", "es/"])
def test_a_tablet_has_targets_for_a_finger_and_letters_to_read(
    open_reader: OpenReader, home: str
) -> None:
    viewport = {"width": 768, "height": 1024}
    reader = open_reader(viewport=viewport, is_mobile=True, has_touch=True)
    for name, place in PLACES.items():
        turn(reader, home + place, name, LARGEST[name])
        assert reader.page.evaluate(SMALL, [name, FINGER]) == []
        assert reader.page.evaluate(LETTERS, [name, LETTER]) == []
        assert reader.page.evaluate("document.documentElement.scrollWidth") == 768


BELOW_THE_PICTURE = """name => {
  const picture = document.querySelector(`#figure-${name} .play-stay`);
  const place = document.activeElement.getBoundingClientRect();
  return picture.parentElement.contains(document.activeElement)
    && !picture.contains(document.activeElement)
    && place.top < picture.getBoundingClientRect().bottom;
}"""


@pytest.mark.parametrize("name", ["collective", "fsdp", "memory"])
def test_what_the_keyboard_reaches_is_not_below_the_picture_that_stays(
    telephone: tuple[Reader, str], name: str
) -> None:
    reader, home = telephone
    page = reader.read(home + PLACES[name])
    controls = page.locator(f"#figure-{name} :is(input, select, button):visible")
    controls.last.focus()
    for _ in range(controls.count()):
        assert not page.evaluate(BELOW_THE_PICTURE, name)
        page.keyboard.press("Shift+Tab")


COLLIDE = """() => {
  const labels = ".ring > :is(.ring-head, .play-stage, .ring-sent)";
  const texts = [...document.querySelectorAll(labels)]
    .filter(part => part.checkVisibility()).map(part => {
      const range = document.createRange();
      range.selectNodeContents(part);
      return range.getBoundingClientRect();
    });
  const cells = [...document.querySelectorAll(".ring-cell")].map(c => c.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right && b.left < a.right
    && a.top < b.bottom && b.top < a.bottom;
  return texts.flatMap((a, i) => [...texts.slice(i + 1), ...cells].filter(b => meet(a, b))).length;
}"""


def test_the_labels_of_a_ring_of_eight_are_apart_and_its_slots_are_seen(
    telephone: tuple[Reader, str],
) -> None:
    reader, home = telephone
    turn(reader, home + PLACES["ring"], "ring", {"ranks": 8})
    assert reader.page.evaluate(COLLIDE) == 0
    width = "all => Math.min(...all.map(slot => slot.getBoundingClientRect().width))"
    assert reader.page.locator(".ring-piece:not([hidden]) > i").evaluate_all(width) >= 2


def test_a_schedule_that_becomes_too_wide_gets_an_edge(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 664})
    page = reader.read(PLACES["schedule"])
    track = page.locator("#figure-schedule .play-scroll")
    assert track.get_attribute("data-more") is None
    page.evaluate(TURN, ["schedule", [[*LARGEST["schedule"].items()]]])
    page.evaluate(TWO_FRAMES)
    assert track.get_attribute("data-more") == "end"
    fade = "track => getComputedStyle(track).maskImage"
    assert "calc(100% - 40px)" in track.evaluate(fade)  # 2rem of its end are pale
    # Every box has its number, and every stage keeps its own while the boxes are scrolled.
    fits = "all => all.every(box => box.clientWidth > 13 && box.firstChild.checkVisibility())"
    assert track.locator(".play-box").evaluate_all(fits)
    track.evaluate("track => { track.scrollLeft = 1e6; }")
    reader.until("() => document.querySelector('#figure-schedule [data-more=start]')")
    assert "rgb(0, 0, 0) 0px" in track.evaluate(fade)  # and there nothing is pale
    left = "all => Math.max(...all.map(stage => stage.getBoundingClientRect().left))"
    assert track.locator(".play-stage").evaluate_all(left) < 1 + track.bounding_box()["x"]


def test_the_button_to_the_top_is_not_over_a_figure(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 664})
    page = reader.read(PLACES["grid"])
    button = page.locator(".md-top")
    to = "([selector, by]) => scrollTo({top: by + scrollY + document.querySelector(selector)" \
         ".getBoundingClientRect().top, behavior: 'instant'})"  # fmt: skip
    for selector, shown in (("#figure-grid", False), ("h2", True)):
        page.evaluate(to, [selector, 400])
        page.wait_for_timeout(150)
        page.evaluate(to, [selector, 40])  # it appears when one scrolls up
        page.wait_for_timeout(0 if shown else 400)
        button.wait_for(state="visible" if shown else "hidden")


CUT = """() => [...document.querySelectorAll(".play :is(select, .play-slider)")].filter(part => {
  if (!part.checkVisibility()) return false;
  if (part.localName === "label") {
    const [text, output] = part.children;
    return text.getBoundingClientRect().bottom !== output.getBoundingClientRect().bottom;
  }
  const style = getComputedStyle(part);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const arrow = 20 + parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
  return [...part.options].some(({ textContent }) =>
    pen.measureText(textContent).width > part.clientWidth - arrow);
}).map(part => part.textContent)"""
PAGES = sorted(set(PLACES.values()))


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("home", ["", "es/"])
def test_no_label_of_a_control_is_cut_or_apart_from_its_value(
    open_reader: OpenReader, home: str, width: int
) -> None:
    reader = open_reader(viewport={"width": width, "height": 900})
    cut = {place: reader.read(home + place).evaluate(CUT) for place in PAGES}
    assert cut == {place: [] for place in PAGES}


# A value that is refused, after what has to be turned before it.
REFUSED: dict[str, tuple[dict[str, Any], str, Any]] = {
    "collective": ({}, "bandwidth", -1), "grid": ({}, "expert", 8), "memory": ({}, "layers", ""),
    "schedule": ({"kind": "interleaved-2"}, "stages", 6),
}  # fmt: skip
BESIDE = """([name, key]) => {
  const field = document.querySelector(`#figure-${name} [name=${key}]`);
  const said = document.getElementById(field.getAttribute("aria-describedby"));
  const [above, below] = [field, said].map(part => part.getBoundingClientRect());
  return [field.getAttribute("aria-invalid"), field.checkVisibility(), said.textContent !== "",
    Math.abs(below.left - above.left) < 8, below.top - above.bottom];
}"""


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_value_is_said_under_its_field_until_it_is_allowed(
    open_reader: OpenReader, axe: str, name: str
) -> None:
    reader = open_reader(viewport={"width": 390, "height": 664})
    page = reader.read(PLACES[name])
    settings, key, value = REFUSED[name]
    [before] = page.evaluate(TURN, [name, [[*settings.items()]]])
    page.locator(f"#figure-{name} [name={key}]").evaluate("field => { window.was = field.value }")
    [refused] = page.evaluate(TURN, [name, [[(key, value)]]])
    assert (before["isOld"], refused["isOld"]) == (False, True)
    line = "all => all.map(one => getComputedStyle(one).textDecorationLine)"
    sums = page.locator(f"#figure-{name} .play-legend strong").evaluate_all(line)
    assert set(sums) <= {"line-through"}
    assert refused["answers"] == before["answers"]
    if name == "schedule":
        assert refused["said"] == dict.fromkeys(refused["said"], load_words("en")[name]["none"])
    invalid, seen, explained, aligned, gap = page.evaluate(BESIDE, [name, key])
    assert (invalid, seen, explained, aligned) == ("true", True, True, True)
    assert 0 <= gap < 10
    page.evaluate(axe)
    faults = (
        f"axe.run('#figure-{name}').then(({{ violations }}) => violations.map(({{ id }}) => id))"
    )
    assert page.evaluate(faults) == []
    again = """field => {
      field.value = window.was;
      field.dispatchEvent(new Event("input", {bubbles: true}));
    }"""
    page.locator(f"#figure-{name} [name={key}]").evaluate(again)
    after = page.evaluate(TURN, [name, [[]]])[0]
    assert not after["isOld"]
    assert after["said"] == {}
    field = page.locator(f"#figure-{name} [name={key}]")
    assert field.get_attribute("aria-describedby") is None


def test_an_axis_is_tapped_next_to_the_picture_and_stays_pressed(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 664})
    page = reader.read(PLACES["grid"])
    moment, axis = (
        page.locator("#figure-grid .play-moment"),
        page.locator("[data-axis-name=pipeline]"),
    )
    axis.tap()
    words = load_words("en")["grid"]
    for settings, inside in (({}, 0), ({"order": "pp-dp-ep-cp-tp"}, 4)):
        page.evaluate(TURN, ["grid", [list(settings.items())]])
        assert axis.get_attribute("aria-pressed") == "true"
        assert moment.text_content() == words["of-axis"].format(
            axis="pipeline", count=4, size=2, inside=inside
        )
    page.locator("#figure-grid .grid-rank").nth(6).tap()
    assert axis.get_attribute("aria-pressed") == "false"
    assert str(moment.text_content()).startswith("Rank 6 is at ")


# What the sentence above a figure invites to do, and what then holds of two answers.
TRIED: list[tuple[str, dict[str, Any], Any]] = [
    ("collective", {"payload": 2**30}, lambda a, b: share(b, "latency") < share(a, "latency")),
    ("dispatch", {"factor": 1}, lambda a, b: times(a, "busiest") > times(b, "busiest")
     and a["answers"]["dropped"] == "0" != b["answers"]["dropped"]
     and float(a["answers"]["sent"].split()[0]) > float(b["answers"]["sent"].split()[0])),
    ("dispatch", {"load": "even"}, lambda a, b: times(b, "busiest") == 1),
    ("schedule", {"microBatches": 16}, lambda a, b: share(b, "bubble") < share(a, "bubble")),
    ("schedule", {"kind": "gpipe"}, lambda a, b: (a["answers"]["bubble"], "8")
     == (b["answers"]["bubble"], b["answers"]["live"])),
    ("fsdp", {"backward_prefetch": "none"}, lambda a, b: share(b, "exposed") > share(a, "exposed")),
    ("memory", {"recompute": "full"}, lambda a, b: b["bar"][3] < a["bar"][3]),
    ("memory", {"card": "B200"}, lambda a, b: b["room"] > a["room"]),
    ("memory-step", {"recompute": "full"},
     lambda a, b: gigabytes(b, "second") < gigabytes(a, "second")),
    ("ring", {"ranks": 8},
     lambda a, b: gigabytes(a, "formula") < gigabytes(b, "formula") < 2 * 0.84),
    ("zero", {"ranks": 64}, lambda a, b: gigabytes(a, "stage-1") > gigabytes(b, "stage-1") > 42
     and gigabytes(b, "stage-3") < 2),
    ("zigzag", {"ranks": 8}, lambda a, b: times(a, "runs") < times(b, "runs")
     and times(a, "zigzag") == times(b, "zigzag") == 1),
]  # fmt: skip


def share(shown: dict[str, Any], key: str) -> float:
    return float(shown["answers"][key].split("(")[-1].split()[0])


def gigabytes(shown: dict[str, Any], key: str) -> float:
    number, unit = shown["answers"][key].split()[-2:]
    return float(number) / {"GB": 1, "MB": 1000}[unit]


def times(shown: dict[str, Any], key: str) -> float:
    return float(shown["answers"][key].split(", ")[1].split()[0])


@pytest.mark.parametrize(("name", "settings", "holds"), TRIED)
def test_what_a_figure_invites_to_try_is_seen_next_to_what_was_before(
    open_reader: OpenReader, name: str, settings: dict[str, Any], holds: Any
) -> None:
    reader = open_reader(viewport={"width": 390, "height": 664})
    page = reader.read(PLACES[name])
    before, after = page.evaluate(TURN, [name, [[], [*settings.items()]]])
    assert holds(before, after)
    was = page.locator(f"#figure-{name} .play-was").all_text_contents()
    parents = page.locator(f"#figure-{name} :has(> .play-was)").evaluate_all(
        "all => all.map(one => getComputedStyle(one).display)")  # fmt: skip
    assert not {"grid", "flex"} & {*parents}
    quiet = page.locator(f"#figure-{name} [data-quiet]").evaluate_all(
        "all => all.map(one => one.dataset.answer)"
    )
    changed = [text for key, text in before["answers"].items()
               if after["answers"][key] != text and key not in quiet]  # fmt: skip
    assert was == [f" (was {text})" for text in changed if len(text) <= 24 and text != "–"]


HEIGHTS = {1440: 900, 390: 1500}  # px of the calculator while its folds are closed


@pytest.mark.parametrize("width", HEIGHTS)
@pytest.mark.parametrize("home", ["", "es/"])
def test_the_calculator_leads_with_its_verdict_and_is_not_much_longer_than_a_window(
    open_reader: OpenReader, home: str, width: int
) -> None:
    reader = open_reader(viewport={"width": width, "height": 900})
    figure = reader.read(home + PLACES["memory"]).locator("#figure-memory")
    assert figure.bounding_box()["height"] <= HEIGHTS[width]
    words = load_words("es" if home else "en")["memory"]
    verdict = figure.locator(".play-stay > :first-child")
    assert str(verdict.text_content()).startswith(f"{words['not-fits']}: {words['needs']} 119")
    assert figure.locator(".play-stay > :nth-child(2) .play-of-card").count() == 1
    wide = "figure => [...figure.querySelectorAll('details')].every(part => {" \
           "part.open = true; return part.scrollWidth <= part.clientWidth; })"  # fmt: skip
    assert figure.evaluate(wide)


PAIRS = {"two-schedules": (("gpipe", "1f1b"), 8, 1), "zero-bubble": (("1f1b", "zb-h1"), 6, 2)}


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("home", ["", "es/"])
def test_two_schedules_are_drawn_whole_and_on_one_clock(
    open_reader: OpenReader, home: str, width: int
) -> None:
    reader = open_reader(viewport={"width": width, "height": 900})
    page = reader.read(home + "theory/04-pipelines-and-the-grid/")
    for name, (kinds, micro_batches, backward) in PAIRS.items():
        figure = page.locator(f"#figure-{name}")
        scrolled = "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
        assert figure.locator(".play-scroll").evaluate_all(scrolled) == 0
        widths = []
        for index, kind in enumerate(kinds):
            timeline = schedule.simulate_schedule(by_name(kind, 4, micro_batches), backward)
            tracks = figure.locator(".play-tracks").nth(index)
            assert tracks.locator("i").all_inner_texts() == [
                str(span.action.microbatch) for spans in timeline for span in spans
            ]
            length = tracks.locator(".play-track").first.evaluate("one => one.clientWidth")
            widths.append(length / max(span.end for spans in timeline for span in spans))
        assert widths[0] == pytest.approx(widths[1], rel=0.02)
