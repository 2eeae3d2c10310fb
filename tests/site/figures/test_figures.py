"""Every number that a figure shows is what the Python that defines it says, in a real browser."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardlab.pipeline.action import chunks_in, name
from shardlab.proofs.collective import Call
from shardlab.proofs.formulas import memory
from shardlab.proofs.formulas.memory import Model, Plan
from shardlab.proofs.schedules.timeline import bubble, peak_live
from sitelab.figures import collective, quantities, schedule
from sitelab.figures import memory as account
from sitelab.figures import trace as recorded
from sitelab.figures.collective import Constants
from sitelab.figures.embed import load_words
from tests.site.reader import Reader

ROOT = Path(__file__).parents[3]
PLACES = {
    "collective": "theory/01-collectives/",
    "fsdp": "theory/03-sharded-data-parallelism/",
    "grid": "theory/04-pipelines-and-the-grid/",
    "memory": "theory/08-memory/",
    "memory-step": "theory/08-memory/",
    "ring": "theory/01-collectives/",
    "schedule": "theory/09-choosing-a-layout/",
    "zigzag": "theory/06-long-sequences/",
}
# Turns controls as a reader does, one after the other, and reads what the figure then says.
TURN = """([name, turns]) => turns.map(turn => {
  const figure = document.querySelector(`#figure-${name}`);
  for (const [key, value] of turn) {
    const field = figure.querySelector(`[name="${key}"]`);
    if (field.type === "checkbox") field.checked = value;
    else if (field.type === "range" || field.localName === "select") {
      const data = JSON.parse(figure.querySelector("script").textContent);
      const at = data.controls.find(one => one.name === key).options.findIndex(
        ([one]) => one === value);
      if (field.type === "range") field.value = at; else field.selectedIndex = at;
    } else field.value = value;
    field.dispatchEvent(new Event("input", {bubbles: true}));
  }
  const all = (selector, told) => Object.fromEntries(
    [...figure.querySelectorAll(selector)].map(told));
  return {
    answers: all("[data-answer]", one => [one.dataset.answer, one.textContent]),
    lines: all("[data-line]:not([hidden])", one => [
      one.dataset.line, Number(one.querySelector(".play-bytes").dataset.bytes)]),
    sums: all("[data-sum]", one => [one.dataset.sum, one.textContent]),
    boxes: [...figure.querySelectorAll(".play-track")].map(track =>
      [...track.querySelectorAll(".play-box")].map(box => [
        box.classList[1].at(-1), box.textContent, box.dataset.chunk, parseFloat(box.style.left),
        parseFloat(box.style.width)])),
    curve: figure.querySelector(".play-curve")?.getAttribute("points"),
    none: figure.querySelector(".play-warning")?.hidden === false,
  };
})"""
Turns = list[list[tuple[str, Any]]]


@pytest.fixture(scope="module")
def reader(browser: Any, served: str) -> Iterator[Reader]:
    reader = Reader(browser, served, viewport={"width": 390, "height": 844})
    yield reader
    reader.close()


def turn_controls(reader: Reader, name: str, turns: Turns) -> list[Any]:
    """Turn a figure's controls; return its numbers and its picture after each turn."""
    page = reader.read(PLACES[name])
    answers = page.evaluate(TURN, [name, turns])
    assert not reader.wrong
    return list(answers)


PLANS = [
    (Model(layers=4, hidden=64, heads=4, sequence=32, vocabulary=256), Plan(recipe="fp32")),
    (
        Model(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200),
        Plan(tensor=8, stages=4, data=32, micro_batches=48, sequence_parallel=True,
             recompute="selective", zero=1),
    ),
    (
        Model(layers=48, hidden=6144, heads=64, sequence=4096, vocabulary=51200),
        Plan(tensor=8, stages=2, data=4, micro_batch=4, micro_batches=1, recompute="full", zero=3),
    ),
    (
        Model(layers=48, hidden=6144, heads=64, sequence=8192, vocabulary=51200, experts=16,
              top_k=4),
        Plan(tensor=2, stages=4, data=4, micro_batches=8, chunks=3, context=2, expert=8, zero=2,
             sequence_parallel=True),
    ),
    *(account.MODELS[name] for name in ("Llama 3 8B", "Llama 3 70B", "Llama 3.1 405B")),
]  # fmt: skip
SWEEP = [
    (
        Model(layers=24, hidden=1024, heads=16, sequence=512, vocabulary=30000, experts=e),
        Plan(tensor=t, stages=p, data=4, micro_batch=2, micro_batches=6, sequence_parallel=s,
             recompute=r, zero=z, recipe=of, chunks=1 + e // 4, context=1 + e // 8, expert=2),
    )
    for t, p, s, r, z, of, e in itertools.product(
        (1, 4), (1, 8), (False, True), memory.RECOMPUTE, range(4), memory.RECIPES, (0, 4, 8))
] + [
    (
        Model(layers=24, hidden=1024, heads=16, sequence=512, vocabulary=30000, ffn=2816, groups=g),
        Plan(tensor=t, stages=p, data=4, micro_batches=6, sequence_parallel=s, recompute=r, zero=z),
    )
    for t, p, s, r, z, g in itertools.product(
        (1, 4), (1, 8), (False, True), memory.RECOMPUTE, range(4), (4, 16))
]  # fmt: skip


@pytest.mark.parametrize("plans", [PLANS, pytest.param(SWEEP, marks=pytest.mark.ci)])
def test_the_calculator_says_what_the_formulas_do(
    reader: Reader, plans: list[tuple[Model, Plan]]
) -> None:
    turns = [[*vars(model).items(), *vars(plan).items()] for model, plan in plans]
    for (model, plan), answer in zip(plans, turn_controls(reader, "memory", turns), strict=True):
        lines: dict[str, float] = {}
        for line in memory.account(model, plan):
            key = account.row_key(line, gated=bool(model.ffn))
            lines[key] = lines.get(key, 0) + line.bytes
        assert answer["lines"] == pytest.approx(lines, rel=1e-12)
        sums = {
            kind: quantities.format_bytes(memory.total(model, plan, kind)) for kind in account.KINDS
        }
        assert answer["sums"] == {
            **sums,
            "whole": quantities.format_bytes(memory.total(model, plan)),
        }


KEYS = [
    ("gpipe", 2, 4), ("zb-h1", 4, 8), ("interleaved-2", 4, 8), ("interleaved-4", 3, 12),
]  # fmt: skip


@pytest.mark.parametrize(
    "keys", [KEYS, pytest.param([*schedule.build_schedules()], marks=pytest.mark.ci)]
)
def test_a_schedule_is_drawn_as_it_is_simulated(
    reader: Reader, keys: list[tuple[str, int, int]]
) -> None:
    wanted = [(key, backward) for key in keys for backward in schedule.BACKWARDS]
    turns: Turns = [
        [("kind", kind), ("stages", stages), ("microBatches", m), ("backward", backward)]
        for (kind, stages, m), backward in wanted
    ]
    for (key, backward), answer in zip(
        wanted, turn_controls(reader, "schedule", turns), strict=True
    ):
        built = schedule.build_schedules()[key]
        timeline = schedule.simulate_schedule(built, backward)
        end = max(span.end for spans in timeline for span in spans)
        assert answer["answers"] == {
            "bubble": quantities.format_percent(bubble(timeline)),
            "live": f"{peak_live(built[0]) / chunks_in(built):g}",
            "sends": str(schedule.count_sends(built)),
        }
        for spans, boxes in zip(timeline, answer["boxes"], strict=True):
            assert [(kind, int(text), int(chunk)) for kind, text, chunk, *_ in boxes] == [
                (name(span.action)[0].lower(), span.action.microbatch, span.action.chunk)
                for span in spans
            ]
            places = [place for *_, start, width in boxes for place in (start, start + width)]
            times = [time for span in spans for time in (span.start, span.end)]
            assert places == pytest.approx([100 * time / end for time in times], abs=1e-3)


def test_a_telephone_shows_the_first_schedule_whole_with_its_numbers(reader: Reader) -> None:
    page = reader.read(PLACES["schedule"])
    scroll = page.locator("#figure-schedule .play-scroll")
    assert scroll.evaluate("one => one.scrollWidth - one.clientWidth") == 0
    numbers = scroll.locator("i")
    assert numbers.count() == 64
    fits = "i => 0 < i.offsetWidth && i.offsetWidth < i.parentElement.clientWidth"
    assert numbers.evaluate_all(f"all => all.every({fits})")


def test_what_cannot_be_interleaved_is_refused_in_words(reader: Reader) -> None:
    settings = [("kind", "interleaved-2"), ("stages", 6), ("microBatches", 8)]
    assert ("interleaved-2", 6, 8) not in schedule.build_schedules()
    [answer] = turn_controls(reader, "schedule", [settings])
    assert answer["none"]
    assert set(answer["answers"].values()) == {"–"}


LINKS = [
    ("all_reduce", "gloo", 2, 2**18), ("all_to_all", "shared-memory", 8, 2**26),
    ("send", "pytorch", 2, 2**20), ("broadcast", "gloo", 1024, 2**30),
]  # fmt: skip
EVERY = [
    *itertools.product(collective.STEPS, ("gloo", "shared-memory", "pytorch"), (2, 64, 1024),
                       (2**10, 2**19, 2**30)),
]  # fmt: skip


@pytest.mark.parametrize("settings", [LINKS, pytest.param(EVERY, marks=pytest.mark.ci)])
def test_a_collectives_time_is_the_formulas_and_the_measured_point_the_results(
    reader: Reader, settings: list[tuple[str, str, int, int]]
) -> None:
    presets = collective.load_presets(ROOT)
    points = {(p.link, p.op, p.bytes): p.seconds for p in collective.load_points(ROOT)}
    turns: Turns = [
        [("op", op), ("preset", link), ("ranks", ranks), ("payload", payload)]
        for op, link, ranks, payload in settings
    ]
    for (op, link, ranks, payload), answer in zip(
        settings, turn_controls(reader, "collective", turns), strict=True
    ):
        call, constants = Call(op, payload, ranks), presets[link][op]
        seconds = collective.predict_seconds(constants, call)
        sent = call.wire / (constants.bandwidth * 1e9)
        measured = points.get((link, op, payload)) if ranks == 2 else None
        assert answer["answers"] == {
            "time": quantities.format_seconds(seconds),
            "latency": quantities.format_percent(1 - sent / seconds),
            "busbw": f"{quantities.format_bytes(call.wire / seconds)}/s",
            "measured": quantities.format_seconds(measured) if measured else "–",
            "farthest": collective.format_farthest(
                constants,
                [p for p in collective.load_points(ROOT) if (p.link, p.op, ranks) == (link, op, 2)],
            ),
        }


def test_two_constants_are_those_that_are_least_off_their_points() -> None:
    def sum_squares(constants: Constants, points: list[collective.Point]) -> float:
        models = [collective.predict_seconds(constants, Call(p.op, p.bytes, 2)) for p in points]
        return sum(math.log(m / p.seconds) ** 2 for m, p in zip(models, points, strict=True))

    fitted = 0
    for link, by_op in collective.load_presets(ROOT).items():
        for op, constants in by_op.items():
            points = [p for p in collective.load_points(ROOT) if (p.link, p.op) == (link, op)]
            if not points:
                continue  # PyTorch's own constants
            fitted += 1
            least = sum_squares(constants, points)
            for factors in itertools.product((0.98, 1, 1.02), repeat=2):
                hop, bandwidth = constants.hop * factors[0], constants.bandwidth * factors[1]
                around = sum_squares(Constants(0, hop, bandwidth), points)
                assert factors == (1, 1) or around > least, (link, op)
    assert fitted == 12


def test_a_bandwidth_of_nothing_is_refused_in_words(reader: Reader) -> None:
    settings = [("bandwidth", 50), ("payload", 2**20)]
    before, *after = turn_controls(
        reader, "collective", [settings, [("bandwidth", 0)], [("bandwidth", 1e300)]]
    )
    assert [answer["answers"] for answer in after] == [before["answers"]] * 2
    words = load_words("en")
    said = reader.page.locator("#figure-collective > .play-note").text_content()
    assert said == words["controls"]["not-between"].format(
        label=words["collective"]["bandwidth"], least=0.001, most=1_000_000
    )


def test_constants_of_ones_own_move_the_curve_and_have_no_measured_point(reader: Reader) -> None:
    constants = Constants(5, 2, 50)
    answer = turn_controls(reader, "collective", [
        [("ranks", 8), ("base", 5), ("hop", 2), ("bandwidth", 50), ("payload", 2**20)]
    ])[0]  # fmt: skip
    assert answer["answers"]["time"] == quantities.format_seconds(
        collective.predict_seconds(constants, Call("all_reduce", 2**20, 8))
    )
    assert answer["answers"]["measured"] == "–"
    drawn = [float(number) for pair in answer["curve"].split() for number in pair.split(",")]
    assert drawn == pytest.approx([
        place
        for payload in collective.PAYLOADS
        for place in (
            collective.bytes_to_percent(payload),
            collective.seconds_to_percent(
                collective.predict_seconds(constants, Call("all_reduce", payload, 8))
            ),
        )
    ], abs=0.011)  # fmt: skip


def test_a_field_that_holds_no_number_leaves_the_picture_as_it_was(reader: Reader) -> None:
    before, after = turn_controls(reader, "memory", [[("heads", 96)], [("layers", "")]])
    assert after["lines"] == before["lines"]
    assert reader.page.locator("[name=layers]").get_attribute("aria-invalid") == "true"


def test_a_keyboard_reaches_and_turns_every_control(reader: Reader) -> None:
    page = reader.read(PLACES["schedule"])
    page.locator("#figure-schedule [name=kind]").focus()
    names = []
    for _ in range(4):
        names.append(page.evaluate("document.activeElement.name"))
        page.keyboard.press("Tab")
    assert names == ["kind", "stages", "microBatches", "backward"]
    page.locator("#figure-schedule [name=stages]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#figure-schedule .play-track").count() == 6
    assert page.locator("[name=stages]").get_attribute("aria-valuetext") == "6"


@pytest.mark.parametrize("language", ["en", "es"])
def test_a_recorded_step_has_a_time_axis_with_a_line_a_tick(language: str) -> None:
    html = recorded.make_figure(load_words(language)["trace"], ROOT).html
    end = recorded.latest_end(json.loads((ROOT / recorded.MEASURED).read_text("utf-8"))["ranks"])
    ticks = re.findall(r'class="play-x" style="left:([\d.]+)%">([^<]+)<', html)
    assert [label for _, label in ticks] == ["0", *(f"{n} ms" for n in range(10, 60, 10))]
    places = [100 * 10_000 * n / end for n in range(6)]
    assert [float(place) for place, _ in ticks] == pytest.approx(places, abs=0.001)
    lines = re.findall(r'class="play-rule" style="left:([\d.]+)%"', html)
    assert lines == [place for place, _ in ticks] * html.count('class="play-track"')


@pytest.mark.parametrize(
    ("end", "labels"),
    [
        (79_999, ["0", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms", "60 ms", "70 ms"]),
        (80_000, ["0", "20 ms", "40 ms", "60 ms", "80 ms"]),
        (1_200, ["0", "0.2 ms", "0.4 ms", "0.6 ms", "0.8 ms", "1 ms", "1.2 ms"]),
    ],
)
def test_a_time_axis_has_at_most_eight_ticks(end: float, labels: list[str]) -> None:
    ticks = recorded.place_ticks(end)
    assert [label for label, _ in ticks] == labels
    step = float(labels[1].removesuffix(" ms")) * 1000
    assert [place * end / 100 for _, place in ticks] == pytest.approx(
        [step * n for n in range(len(labels))]
    )


@pytest.mark.parametrize("name", PLACES)
def test_without_a_script_a_figure_shows_its_first_numbers_and_no_dead_control(
    site: Path, name: str
) -> None:
    for language in ("", "es/"):
        html = (site / language / PLACES[name] / "index.html").read_text("utf-8")
        figure = re.search(rf'<figure class="play" id="figure-{name}".*?</figure>', html, re.DOTALL)
        assert figure
        shown = re.sub(r"<script.*?</script>", "", figure[0], flags=re.DOTALL)
        assert not re.search(r"<(input|select|button)", shown)
        assert re.search(r"data-(answer=|sum=|rank).*?>[\d.]+", shown)
