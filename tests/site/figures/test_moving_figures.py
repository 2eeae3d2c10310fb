"""What moves (a ring, rows of experts, a causal square, memory, a schedule): each number."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from costlab.layouts.memory import live_pieces
from shardlab.context.zigzag import visible_slices
from shardlab.experts.expert_config import ExpertConfig
from shardlab.pipeline.action import Backward, Forward, Weight, chunks_in
from shardlab.proofs import causal_work
from shardlab.proofs.collective import Call
from shardlab.proofs.formulas.experts import all_gather_experts, all_to_all_experts
from shardlab.proofs.formulas.seconds import steps
from shardlab.proofs.schedules.timeline import peak_live
from sitelab.figures import dispatch, embed, memory_step, ring, schedule, zigzag
from sitelab.figures.embed import load_words
from sitelab.figures.memory_step import KINDS
from tests.site.figures.test_figures import PLACES, TURN
from tests.site.reader import OpenReader, Reader

NAMES = ("ring", "dispatch", "zigzag", "memory-step")
PLAYED = (*NAMES, "fsdp", "schedule")
WORDS = {name: load_words("en")["controls"] | load_words("en")[name] for name in PLAYED}
# Moves the slider to each of a figure's moments and reads what is drawn then. What the moments of
# memory's figure have in common is read once.
MOMENTS = """([name, moments]) => {
  const figure = document.querySelector(`#figure-${name}`);
  const slider = figure.querySelector(".play-player input");
  const all = (selector, read) => [...figure.querySelectorAll(selector)].map(read);
  const text = (one) => one.textContent;
  const mask = (piece) => [...piece.children].reduce(
    (sum, slot, rank) => sum + (slot.hasAttribute("data-in") ? 2 ** rank : 0), 0);
  return (moments ?? [...Array(Number(slider.max) + 1).keys()]).map((moment) => {
    slider.value = moment;
    slider.dispatchEvent(new Event("input", {bubbles: true}));
    return {
      text: figure.querySelector(".play-moment").textContent,
      spoken: slider.getAttribute("aria-valuetext"),
      answers: Object.fromEntries(all("[data-answer]", (one) => [one.dataset.answer, text(one)])),
      sums: Object.fromEntries(all("[data-sum]", (one) => [one.dataset.sum, text(one)])),
      pieces: all(".ring-cell", (cell) => mask(cell.firstChild)),
      moving: all(".ring-moves", (one) => [mask(one), one.classList.contains("play-partial")]),
      back: all(".ring-back:not([hidden])", (one) => Number(one.style.getPropertyValue("--piece"))),
      legend: all(".play-legend > :not([hidden]) > [class*=play-]", (key) => key.className),
      leaving: all(".ring-cell", (cell) => cell.hasAttribute("data-leaves")),
      arriving: all(".ring-cell", (cell) => cell.hasAttribute("data-arrives")),
      complete: all(".ring-cell", (cell) => cell.hasAttribute("data-complete")),
      later: all(".play-track > .play-box", (box) => box.hasAttribute("data-later")),
      now: parseFloat(figure.querySelector(".play-tracks")?.style.getPropertyValue("--now")),
      partial: all(".ring-piece:not(.ring-moves)", (one) =>
        one.classList.contains("play-partial") && !one.hidden),
      sent: all(":is(.ring-sent, .moe-sum)", text),
      heads: all(".moe > :is(.ring-head, .moe-owner)", text),
      rows: all(".moe-cell", (cell) =>
        [...cell.children].map((row) => row.dataset.row[0]).join("")),
      moment: figure.querySelector(".moe")?.dataset.moment,
      isHollow: all(".moe-cell > i", (row) => getComputedStyle(row).opacity !== "1"
        || getComputedStyle(row).visibility === "hidden"),
      cells: all(".causal-square", (square) => [...square.children].map((cell) =>
        [cell.textContent, cell.dataset.when ?? null, cell.hasAttribute("data-half")])),
      tracks: all(".causal-tracks .play-track", (track) => [parseFloat(track.style.width),
        ...[...track.children].map((box) => [box.textContent,
          parseFloat(box.style.left), parseFloat(box.style.width)])]),
      counts: all(".causal-sum", text),
      ...(moment ? {} : {
        areas: all(".step-area", (area) => [area.dataset.kind, area.getAttribute("points")]),
        peaks: all(".step-peak", (path) => path.getAttribute("d")),
        labels: all(".step-label", text),
        boxes: all(".step-track > .play-box", (box) => [box.className.at(-1), box.textContent,
          parseFloat(box.style.left), parseFloat(box.style.width)]),
      }),
    };
  });
}"""


def read_moments(
    reader: Reader, name: str, settings: dict[str, Any], moments: list[int] | None = None
) -> list[Any]:
    """Turn a figure's controls, and return what it shows at each moment."""
    page = reader.page if PLACES[name] in reader.page.url else reader.read(PLACES[name])
    page.evaluate(TURN, [name, [list(settings.items())]])
    answers = page.evaluate(f"asked => JSON.stringify(({MOMENTS})(asked))", [name, moments])
    assert not reader.wrong
    return list(json.loads(answers))


# ------------------------------------------------------------------ the ring


@pytest.mark.parametrize("ranks", ring.RANKS)
@pytest.mark.parametrize("op", ring.OPS)
def test_steps_of_a_collective_end_as_it_is_defined_after_the_formulas_bytes(
    op: str, ranks: int
) -> None:
    last, whole = steps(op, ranks), 2**ranks - 1
    contents, sent = ring.trace_pieces(op, ranks, last)
    assert sent == [Call(op, ring.PAYLOAD, ranks).wire] * ranks
    wanted = {
        "all_reduce": lambda rank, piece: whole,
        "reduce_scatter": lambda rank, piece: whole if piece == rank else 0,
        "all_gather": lambda rank, piece: 1 << piece,
        "all_to_all": lambda rank, piece: 1 << piece,
    }[op]
    assert contents == [[wanted(rank, piece) for piece in range(ranks)] for rank in range(ranks)]
    for step in range(1, last + 1):
        sends = ring.list_sends(op, ranks, step)
        far = step if op == "all_to_all" else 1
        ends = [(rank, (rank + far) % ranks) for rank in range(ranks)]
        assert [(send.source, send.target) for send in sends] == ends


def test_each_step_of_a_collective_is_drawn_as_it_is_counted(reader: Reader) -> None:
    words = WORDS["ring"]
    for op, ranks in itertools.product(ring.OPS, ring.RANKS):
        shown = read_moments(reader, "ring", {"op": op, "ranks": ranks})
        final = list(itertools.chain(*ring.trace_pieces(op, ranks, steps(op, ranks))[0]))
        assert len(shown) == steps(op, ranks) + 1
        for step, picture in enumerate(shown):
            contents, sent = ring.trace_pieces(op, ranks, step)
            sends = ring.list_sends(op, ranks, step) if step else []
            masks = list(itertools.chain(*contents))
            assert picture["pieces"] == masks
            leaving = {send.source * ranks + send.piece for send in sends}
            arriving = {send.target * ranks + send.place for send in sends}
            places = range(ranks * ranks)
            assert picture["leaving"] == [place in leaving for place in places]
            assert picture["arriving"] == [place in arriving for place in places]
            complete = [0 < mask == last for mask, last in zip(masks, final, strict=True)]
            assert picture["complete"] == complete
            sums = op in ("all_reduce", "reduce_scatter")
            assert picture["partial"] == [sums and 0 < mask < 2**ranks - 1 for mask in masks]
            before, _ = ring.trace_pieces(op, ranks, max(0, step - 1))
            far = op == "all_to_all"
            moves = [1 << send.source if far else before[send.source][send.piece]
                     for send in sorted(sends, key=lambda send: send.target)]  # fmt: skip
            assert picture["moving"] == [[mask, sums and mask < 2**ranks - 1] for mask in moves]
            assert picture["back"] == [send.piece for send in sends if not (send.target or far)]
            assert ("play-key play-partial" in picture["legend"]) is sums
            assert picture["sent"] == [embed.format_bytes(count) for count in sent]
            assert picture["answers"] == ring.answer(op, ranks, step, words)
            assert picture["text"] == ring.describe_step(op, ranks, step, words)
            assert picture["spoken"] == picture["text"]


# ------------------------------------------------------------------ the rows of experts

DISPATCHES = [dict(zip(dispatch.INITIAL, values, strict=True)) for values in itertools.product(
    dispatch.LOADS, dispatch.RANKS, dispatch.TOP, dispatch.FACTORS, (False, True))]  # fmt: skip


def test_rows_are_chosen_dropped_and_padded_as_shardlabs_router_does() -> None:
    routing = pytest.importorskip("shardlab.experts.routing")
    for at in DISPATCHES:
        config = ExpertConfig(count=8, top_k=at["top"], pad=bool(at["pads"] and at["factor"]),
                              pre_softmax=True, capacity=at["factor"] or None)  # fmt: skip
        tokens = dispatch.score_tokens(at["load"])[: at["ranks"]]
        for scores, rows in zip(tokens, dispatch.count_rows(at), strict=True):
            probs, chosen = routing.choose(routing.Tensor(scores), config)
            routed = routing.drop(probs, chosen, config)[1]
            masks = (routed & chosen, chosen & ~routed, routed & ~chosen)
            assert [*map(list, zip(*rows, strict=True))] == [mask.sum(0).tolist() for mask in masks]


def test_ranks_send_the_rows_of_others_experts_as_the_formulas_count_them() -> None:
    for at in DISPATCHES:
        shared = {"hidden": 1, "itemsize": dispatch.ROW, "prob": 0, "experts": 8}
        shared |= {"ranks": at["ranks"]}
        sent, rows = dispatch.count_sent(at), dispatch.count_messages(at)
        for key, lines in (("out", rows), ("back", [*zip(*rows, strict=True)])):
            away = [sum(line) - line[rank] for rank, line in enumerate(lines)]
            assert sent[key] == [dispatch.ROW * count for count in away]
        whole = {"sent": sum(rows[0]), "received": sum(rows[0])}
        formulas = (all_to_all_experts(**whole, **shared, even=True),
                    all_gather_experts(tokens=dispatch.TOKENS, **shared))  # fmt: skip
        counted, gathered = (sum(call.wire * times for call, times in formula.forward.items())
                             for formula in formulas)  # fmt: skip
        if at["load"] == "even":
            assert [*map(sum, zip(*sent.values(), strict=True))] == [counted] * at["ranks"]
        answers = dispatch.answer(at, WORDS["dispatch"])
        assert answers["gathered"] == embed.format_bytes(gathered)


def test_each_moment_of_a_dispatch_is_drawn_as_it_is_counted(reader: Reader) -> None:
    words = WORDS["dispatch"]
    for at in DISPATCHES:
        share = 8 // at["ranks"]
        routed = [[("s" if expert // share == rank else "t") * cell.kept + "p" * cell.padded
                 for expert, cell in enumerate(row)]
                for rank, row in enumerate(dispatch.count_rows(at))]  # fmt: skip
        home = [letters + "d" * cell.dropped for row, cells in zip(routed, dispatch.count_rows(at),
                strict=True) for letters, cell in zip(row, cells, strict=True)]  # fmt: skip
        away = ["".join(column) for column in zip(*routed, strict=True)]
        numbers = [*range(8), *map(len, away), *range(at["ranks"])]
        sums = map(sum, zip(*dispatch.count_sent(at).values(), strict=True))
        same = {
            "rows": home + away, "answers": dispatch.answer(at, words),
            "sent": [words["sends"], *map(embed.format_bytes, sums), "", "", ""],
            "heads": [words["expert"], *map(str, numbers)],
        }  # fmt: skip
        for moment, shown in enumerate(read_moments(reader, "dispatch", at)):
            same |= {"moment": str(moment), "text": dispatch.describe_moment(at, moment, words)}
            assert shown | same == shown
            hollow = ("p|stp", "|stp", "tp|", "|tp")[moment].split("|")
            assert shown["isHollow"] == [row in hollow[place]
                for place, cells in enumerate((home, away)) for row in "".join(cells)]  # fmt: skip


# ------------------------------------------------------------------ the causal square


@pytest.mark.parametrize("ranks", zigzag.RANKS)
def test_the_work_of_a_causal_square_is_shardlabs(ranks: int) -> None:
    for cut, balanced in (("runs", False), ("zigzag", True)):
        work = zigzag.count_work(cut, ranks)
        assert zigzag.assign_chunks(cut, ranks) == causal_work.assign_chunks(
            ranks, balanced=balanced
        )
        assert [sum(each) for each in work] == causal_work.count_cells(ranks, balanced=balanced)
    work = zigzag.count_work("zigzag", ranks)
    for rank, step in itertools.product(range(ranks), repeat=2):
        queries, keys, is_causal = visible_slices(rank, (rank - step) % ranks, 2)
        pairs = (queries.stop - queries.start) * (keys.stop - keys.start)
        assert work[rank][step] == pairs / 2 if is_causal else pairs


def test_each_step_of_the_causal_square_is_drawn_as_it_is_counted(reader: Reader) -> None:
    words = WORDS["zigzag"]
    for ranks in zigzag.RANKS:
        works = [zigzag.count_work(cut, ranks) for cut in zigzag.CUTS]
        starts = [zigzag.start_steps(work) for work in works]
        end = max(times[-1] for times in starts)
        shown = read_moments(reader, "zigzag", {"ranks": ranks})
        assert len(shown) == ranks
        for now, picture in enumerate(shown):
            assert picture["answers"] == {
                cut: zigzag.answer(cut, ranks, words) for cut in zigzag.CUTS
            }
            assert picture["text"] == zigzag.describe_step(ranks, now, words)
            for cut, drawn in zip(zigzag.CUTS, picture["cells"], strict=True):
                cells: list[Any] = [["", None, False]] * (4 * ranks**2)
                for cell in zigzag.list_cells(cut, ranks):
                    when = ("before", "now", "later")[(cell.step >= now) + (cell.step > now)]
                    place = 2 * ranks * cell.row + cell.column
                    cells[place] = [str(cell.rank), when, cell.work == 0.5]
                assert drawn == cells
            done = [(steps, times) for work, times in zip(works, starts, strict=True)
                    for steps in work]  # fmt: skip
            assert picture["counts"] == [f"{sum(each[: now + 1]):g}" for each, _ in done]
            for track, (each, times) in zip(picture["tracks"], done, strict=True):
                assert track[0] == pytest.approx(100 * times[-1] / end, abs=1e-3)
                boxes = [[str(n), times[n], count] for n, count in enumerate(each[: now + 1])
                         if count]  # fmt: skip
                assert [box[0] for box in track[1:]] == [box[0] for box in boxes]
                for box, (_, start, count) in zip(track[1:], boxes, strict=True):
                    assert box[1:] == pytest.approx(
                        [100 * start / times[-1], 100 * count / times[-1]], abs=1e-3
                    )


# ------------------------------------------------------------------ memory over two steps

MEMORIES = [*itertools.product(memory_step.NAMES, memory_step.MICRO_BATCHES, memory_step.BACKWARD)]


@pytest.mark.parametrize("name", memory_step.NAMES)
def test_memory_over_a_step_is_the_accounts_and_ends_as_it_began(name: str) -> None:
    for _, micro_batches, recompute in (at for at in MEMORIES if at[0] == name):
        check_memory(name, micro_batches, recompute)


def check_memory(name: str, micro_batches: int, recompute: str) -> None:
    held, plan = memory_step.count_kinds(name, micro_batches, recompute)
    activation = sum(held[kind] for kind in ("activations", "logits", "buffers"))
    wanted = [held["weights"], held["gradients"], held["optimizer"], activation]
    parts = memory_step.count_bytes(name, recompute)
    assert parts.master + parts.moments == wanted[2]
    for keeps in (False, True):
        traced = memory_step.make_trace(name, micro_batches, recompute, keeps)
        half = len(traced) // 2
        points = [point for _, of_span in traced for point in of_span]
        for kind, most in enumerate(wanted):
            assert max(point.bytes[kind] for point in points) == pytest.approx(most, rel=1e-12)
        first = [p for span, of_span in traced[:half] if span.kind != "U" for p in of_span]
        assert {point.bytes[2] for point in first} == {parts.master}
        assert {p.bytes[2] for _, of_span in traced[half:] for p in of_span} == {wanted[2]}
        assert traced[half][1][0].bytes[1] == (parts.gradient if keeps else 0)
        assert points[-1].bytes[3] == pytest.approx(0, abs=1)
        live = max(sum(s.kind == "F" for s, _ in traced[: n + 1]) -
                   sum(s.kind == "B" for s, _ in traced[:n]) for n in range(half))  # fmt: skip
        assert live - 1 <= live_pieces(plan, 0) <= live
        peak = sum(memory_step.find_peak(points).bytes)
        if keeps or micro_batches > plan.stages:
            assert peak == pytest.approx(sum(wanted), rel=1e-12)
        elif micro_batches == 1:
            assert peak < sum(wanted)


def test_memory_is_drawn_as_it_is_traced_and_each_moment_says_its_most(reader: Reader) -> None:
    words = WORDS["memory-step"]
    keys = ("model", "microBatches", "recompute", "keeps")
    for at in ((*settings, keeps) for settings in MEMORIES for keeps in (False, True)):
        traced = memory_step.make_trace(*at)
        points = [point for _, of_span in traced for point in of_span]
        end, half = traced[-1][0].end, len(traced) // 2
        shown = read_moments(reader, "memory-step", dict(zip(keys, at, strict=True)))
        assert len(shown) == len(traced)
        for (span, of_span), picture in zip(traced, shown, strict=True):
            peak = memory_step.find_peak(of_span)
            assert picture["text"] == memory_step.describe_span(span, peak, words)
            assert picture["sums"] == {
                kind: embed.format_bytes(count)
                for kind, count in zip(KINDS, peak.bytes, strict=True)
            }
        account = memory_step.count_account(*at[:3])
        assert shown[0]["answers"] == memory_step.answer(traced, account)
        peaks = [
            sum(memory_step.find_peak([p for _, of_span in part for p in of_span]).bytes)
            for part in (traced[:half], traced[half:])
        ]
        top = memory_step.choose_axis(max(peaks))[-1]
        for kind, drawn in shown[0]["areas"]:
            wanted = memory_step.draw_area(points, kind, end, top)
            assert read_numbers(drawn) == pytest.approx(read_numbers(wanted), abs=0.0011)
        heights = [100 - 100 * peak / top for peak in peaks]
        drawn_heights = [read_numbers(path)[1] for path in shown[0]["peaks"]]
        assert drawn_heights == pytest.approx(heights, abs=0.0011)
        texts = [f"{words['peak']} {embed.format_bytes(peak)}" for peak in peaks]
        assert shown[0]["labels"] == texts
        for box, (span, _) in zip(shown[0]["boxes"], traced, strict=True):
            number = "" if span.kind == "U" else str(span.microbatch)
            assert box[:2] == [span.kind.lower(), number]
            places = [100 * span.start / end, 100 * (span.end - span.start) / end]
            assert box[2:] == pytest.approx(places, abs=1e-3)


def read_numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", text)]


# ------------------------------------------------------------------ a pipeline's schedule

SCHEDULES = [
    ("1f1b", 4, 8, 2), ("zb-h1", 3, 4, 3), ("interleaved-2", 2, 4, 1), ("gpipe", 8, 2, 1),
]  # fmt: skip


@pytest.mark.parametrize("settings", SCHEDULES)
def test_each_moment_of_a_schedule_says_who_computes_and_what_is_alive(
    reader: Reader, settings: tuple[str, int, int, int]
) -> None:
    words = WORDS["schedule"]
    built = schedule.build_schedules()[settings[:3]]
    timeline = schedule.simulate_schedule(built, settings[3])
    spans = [span for stage in timeline for span in stage]
    times = sorted({time for span in spans for time in (span.start, span.end)})
    last = Weight if any(isinstance(span.action, Weight) for span in spans) else Backward
    keys = ("kind", "stages", "microBatches", "backward")
    shown = read_moments(reader, "schedule", dict(zip(keys, settings, strict=True)))
    peak, pieces = 0.0, chunks_in(built)
    for now, picture in zip(times, shown, strict=True):
        assert picture["later"] == [span.start > now for span in spans]
        assert picture["now"] == pytest.approx(100 * now / times[-1])
        live = [
            sum(isinstance(s.action, Forward) and s.start <= now for s in stage)
            - sum(isinstance(s.action, last) and s.end <= now for s in stage)
            for stage in timeline
        ]
        busy = sum(any(s.start <= now < s.end for s in stage) for stage in timeline)
        peak = max(peak, live[0])
        text = words["moment"].format(
            now=f"{now / pieces:g}", end=f"{times[-1] / pieces:g}", busy=busy,
            stages=len(timeline), live=", ".join(f"{count / pieces:g}" for count in live),
        )  # fmt: skip
        assert picture["text"] == (words["still"] if now == times[-1] else text)
    assert peak == peak_live(built[0])


def test_the_moment_of_a_wide_schedule_stays_in_sight(reader: Reader) -> None:
    at = {"kind": "1f1b", "stages": 8, "microBatches": 16, "backward": 2}
    read_moments(reader, "schedule", at, [30])
    place = """() => {
      const scroll = document.querySelector("#figure-schedule .play-scroll");
      const [{ left, width }, now] = [scroll.firstChild.getBoundingClientRect(),
        parseFloat(scroll.firstChild.style.getPropertyValue("--now"))];
      return [scroll.scrollWidth > scroll.clientWidth, left + width * now / 100, innerWidth];
    }"""
    wide, cursor, window = reader.page.evaluate(place)
    assert wide
    assert 0 < cursor < window


def test_the_line_of_a_moment_glides_only_if_motion_is_wanted(open_reader: OpenReader) -> None:
    seconds = """() => getComputedStyle(document.querySelector(
      "#figure-schedule .play-track"), "::after").transitionDuration"""
    for wanted, lasts in (("no-preference", "0.3s"), ("reduce", "0s")):
        reader = open_reader(reduced_motion=wanted)
        page = reader.read(PLACES["schedule"])
        page.locator("#figure-schedule .play-player input").focus()
        page.keyboard.press("Home")
        assert page.evaluate(seconds) == lasts


# ------------------------------------------------------------------ all that move


@pytest.mark.parametrize("name", PLAYED)
def test_a_keyboard_steps_and_plays_a_figure(reader: Reader, name: str) -> None:
    page = reader.read(PLACES[name])
    figure = page.locator(f"#figure-{name}")
    slider, button = (
        figure.locator(".play-player input"),
        figure.locator(".play-player button").first,
    )
    slider.focus()
    page.keyboard.press("Home")
    first = figure.locator(".play-moment").text_content()
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "1"
    assert figure.locator(".play-moment").text_content() != first
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert WORDS[name]["pause"] in str(button.text_content())
    value = f"document.querySelector('#figure-{name} .play-player input').value"
    reader.until(f"() => {value} > 1")
    page.keyboard.press("Enter")
    assert WORDS[name]["play"] in str(button.text_content())
    back, on = figure.locator(".play-by-one").all()
    slider.focus()
    page.keyboard.press("Home")
    for step, value in ((on, "1"), (on, "2"), (back, "1"), (back, "0"), (back, "0")):
        step.click()
        assert slider.input_value() == value
    assert figure.locator(".play-moment").text_content() == first
    assert not reader.wrong


@pytest.mark.parametrize("name", PLAYED)
def test_play_begins_at_the_first_moment_wherever_the_figure_opens(
    reader: Reader, name: str
) -> None:
    page = reader.read(PLACES[name])
    slider = f"document.querySelector('#figure-{name} .play-player input')"
    assert page.evaluate(f"Number({slider}.value)") > 0
    played = f"""() => {{
      document.querySelector("#figure-{name} .play-player button").click();
      return {slider}.value;
    }}"""
    assert page.evaluate(played) == "0"
    reader.until(f"() => {slider}.value === '1'")
    # What the reader has chosen is played from there.
    page.evaluate(f"{slider}.value = 2; {slider}.dispatchEvent(new Event('input'))")
    assert page.evaluate(played) == "2"
    assert not reader.wrong


def test_pieces_travel_only_if_motion_is_wanted(browser: Any, served: str) -> None:
    count = """() => {
      const { animate } = Element.prototype;
      window.animated = [];
      Element.prototype.animate = function (...settings) {
        window.animated.push(this.className);
        return animate.apply(this, settings);
      };
    }"""
    for wanted, travelling in (("no-preference", 4), ("reduce", 0)):
        reader = Reader(browser, served, reduced_motion=wanted)
        page = reader.read(PLACES["ring"])
        page.locator("#figure-ring .play-player input").focus()
        page.keyboard.press("Home")
        page.evaluate(count)
        page.keyboard.press("ArrowRight")
        assert page.evaluate("animated.filter(name => /moves/.test(name)).length") == travelling
        assert not reader.wrong
        reader.close()


@pytest.mark.parametrize(
    ("name", "language"),
    [*zip(PLAYED, ("es/", "", "es/", "", "es/", ""), strict=True)],
)
def test_scripts_leave_the_first_picture_as_it_was_built(
    browser: Any, served: str, reader: Reader, name: str, language: str
) -> None:
    plain = Reader(browser, served, java_script_enabled=False)
    place = language + PLACES[name]
    drawings = []
    for page in (plain.read(place), reader.read(place)):
        drawings.append(
            [page.locator(f"#figure-{name} {part}").text_content()
             for part in ("[role=img]", ".play-answers", ".play-moment", ".play-legend")]
        )  # fmt: skip
    plain.close()
    built, drawn = drawings
    assert drawn == built


@pytest.mark.parametrize("name", NAMES)
def test_a_telephone_shows_the_whole_picture_at_its_largest(reader: Reader, name: str) -> None:
    page = reader.read(PLACES[name])
    settings = {"microBatches": 16, "model": "175B"} if name == "memory-step" else {"ranks": 8}
    page.evaluate(TURN, [name, [list(settings.items())]])
    wide = f"document.querySelector('#figure-{name}')"
    assert page.evaluate(f"{wide}.scrollWidth <= {wide}.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
