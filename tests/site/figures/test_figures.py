"""Every number that a figure shows is what the Python that defines it says, in a real browser."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from dataclasses import asdict
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from costlab.layouts import fits, memory, model, model_config, runs, stack_memory
from shardlab.pipeline.action import chunks_in, name
from shardlab.proofs.collective import Call
from shardlab.proofs.schedules.timeline import bubble, peak_live
from sitelab.figures import collective, embed, schedule
from sitelab.figures import memory as account
from sitelab.figures import trace as recorded
from sitelab.figures.collective import Constants
from sitelab.figures.embed import load_words
from tests.site.reader import OpenReader, Reader

ROOT = Path(__file__).parents[3]
PLACES = {
    "collective": "theory/01-collectives/",
    "dispatch": "theory/05-experts/",
    "fsdp": "theory/03-sharded-data-parallelism/",
    "grid": "theory/04-pipelines-and-the-grid/",
    "memory": "theory/08-memory/",
    "memory-step": "theory/08-memory/",
    "ring": "theory/01-collectives/",
    "schedule": "theory/09-choosing-a-layout/",
    "zero": "theory/03-sharded-data-parallelism/",
    "zigzag": "theory/06-long-sequences/",
}
# Turns controls as a reader does, one after the other, and reads what the figure then says. With
# `atOnce` the figure is told of a turn's last control only, and draws each turn once.
TURN = """([name, turns, atOnce = false]) => {
  const figure = document.querySelector(`#figure-${name}`);
  const {controls} = JSON.parse(figure.querySelector("script").textContent);
  const fields = Object.fromEntries(controls.map(({name, options}) =>
    [name, [figure.querySelector(`[name="${name}"]`), options]]));
  const all = (selector, told) => Object.fromEntries(
    [...figure.querySelectorAll(selector)].map(told));
  return turns.map(turn => {
  turn.forEach(([key, value], place) => {
    const [field, options] = fields[key];
    const index = () => options.findIndex(([one]) => one === value);
    if (field.type === "checkbox") field.checked = value;
    else if (field.type === "range") field.value = index();
    else if (field.localName === "select") field.selectedIndex = index();
    else field.value = value;
    if (!atOnce || place === turn.length - 1)
      field.dispatchEvent(new Event("input", {bubbles: true}));
  });
  return {
    answers: all("[data-answer]", one => [one.dataset.answer, one.textContent]),
    lines: all("[data-line]:not([hidden])", one => [
      one.dataset.line, Number(one.querySelector(".play-bytes").dataset.bytes)]),
    sums: all("[data-sum]", one => [one.dataset.sum, one.textContent]),
    boxes: [...figure.querySelectorAll(".play-track")].map(track =>
      [...track.querySelectorAll(".play-box")].map(box => [
        box.classList[1].at(-1), box.textContent, box.dataset.chunk, parseFloat(box.style.left),
        parseFloat(box.style.width)])),
    bar: [...figure.querySelectorAll(".play-of-card > *")].map(
      part => parseFloat(part.style.width)),
    room: parseFloat(figure.querySelector(".play-fitting")?.style.getPropertyValue("--room")),
    range: ["left", "width"].map(
      side => parseFloat(figure.querySelector(".play-range")?.style[side])),
    verdict: figure.querySelector(".play-answer")?.dataset.verdict,
    curve: figure.querySelector(".play-curve")?.getAttribute("points"),
    isOld: figure.hasAttribute("data-old"),
    said: all(".play-said:not([hidden])", one => [
      one.parentElement.querySelector("[name]").name, one.textContent]),
  };
  });
}"""
Turns = list[list[tuple[str, Any]]]


def turn_controls(reader: Reader, name: str, turns: Turns, *, at_once: bool = False) -> list[Any]:
    """Turn a figure's controls; return its numbers and its picture after each turn."""
    page = reader.read(PLACES[name])
    answers = page.evaluate(f"all => JSON.stringify(({TURN})(all))", [name, turns, at_once])
    assert not reader.wrong
    return list(json.loads(answers))


PRESETS = account.load_presets()
CARDS = {"card": "H100"}


def random_settings(count: int, seed: int) -> list[dict[str, Any]]:
    """Return settings, some of them impossible, of which each control has several."""
    draw = random.Random(seed)
    choices: dict[str, tuple[Any, ...]] = {
        "layers": (4, 8, 12), "hidden": (64, 96), "heads": (4, 8, 12), "kv_heads": (0, 2, 4, 8),
        "head_size": (0, 0, 16), "ffn": (0, 96), "vocabulary": (1000, 4096), "gated": (0, 1),
        "tied": (0, 1), "experts": (0, 0, 4, 8), "top_k": (1, 2), "expert_ffn": (0, 32),
        "shared_ffn": (0, 32), "shared_gate": (0, 1), "dense_layers": (0, 1, 20),
        "positions": (0, 0, 32, 128), "norm": ("layer", "rms"), "bias": (0, 1),
        "qkv_bias": (0, 1), "qk_norm": (0, 1), "embedding_norm": (0, 1), "dropout": (0, 1),
        "tensor": (1, 2, 4), "stages": (1, 2, 4), "data": (1, 2, 4), "context": (1, 1, 2),
        "chunks": (1, 1, 2), "expert": (1, 2), "expert_tensor": (1, 1, 2),
        "sequence_parallel": (0, 1), "micro_batch": (1, 2), "micro_batches": (1, 4, 6, 8),
        "sequence": (63, 64, 128), "recompute": model.RECOMPUTE, "recompute_layers": (0, 0, 1),
        "attention": model.ATTENTION, "zero": (0, 1, 2, 3), "activation": (2, 4),
        "weight": (2, 4), "gradient": (2, 4, 6), "optimizer": (0, 8, 12), "logits": (2, 4),
        "gathered": (1, 2), "pad": (1, 128), "loss_copies": (0, 1, 2), "compiled": (0, 1),
        "whole_logits": (0, 1), "gathered_inputs": (0, 1), "unfused_norms": (0, 1),
        "layers_of_stages": ("", "", "", "3,5", "2,2,4", "1,2,1,4"),
    }  # fmt: skip
    flags = {name for name, values in choices.items() if values == (0, 1) and name != "zero"}
    drawn = []
    for _ in range(count):
        at = {name: draw.choice(values) for name, values in choices.items()}
        at |= {name: bool(at[name]) for name in flags}
        if draw.random() < 0.6 and at["stages"] * at["chunks"] > 1:
            at["layers_of_stages"] = ""
        drawn.append(at | {"card": draw.choice([*runs.CARDS])})
    return drawn


def rotate(pairs: list[tuple[str, Any]], by: int) -> list[tuple[str, Any]]:
    by %= len(pairs)
    return pairs[by:] + pairs[:by]


def find_fault(at: dict[str, Any]) -> model.LayoutError | None:
    try:
        model.check(*account.read_plan(at))
    except model.LayoutError as fault:
        return fault
    return None


def test_the_calculator_counts_and_refuses_as_fits_does(reader: Reader) -> None:
    words = load_words("en")["memory"]
    drawn = random_settings(6000, seed=6000)  # most are impossible, and an eighth of those will do
    settings = [at | CARDS for at in PRESETS.values()]
    settings += [at for n, at in enumerate(drawn) if n % 8 == 0 or not find_fault(at)]
    # Each control is the one that the figure is told of, in every fiftieth setting or so.
    turns = [
        rotate([(k, v) for k, v in at.items() if k not in ("model", "program")], number)
        for number, at in enumerate(settings)
    ]
    counted = 0
    answers = turn_controls(reader, "memory", turns, at_once=True)
    for at, shown in zip(settings, answers, strict=True):
        if fault := find_fault(at):
            assert shown["isOld"] and shown["said"], (fault, at)
            continue
        assert not (shown["isOld"] or shown["said"]), (shown["said"], at)
        counted += 1
        lines = {key: value for key, value in account.count_lines(at).items() if value}
        assert shown["lines"] == pytest.approx(lines, rel=1e-12), at
        sums = {
            kind: embed.format_bytes(
                sum(value for key, value in lines.items() if key.startswith(f"{kind}/"))
            )
            for kind in memory.KINDS
        }
        assert shown["sums"] == {**sums, "whole": embed.format_bytes(sum(lines.values()))}
        assert shown["answers"] == account.answer(at, words)
        stages = memory.all_ranks(*account.read_plan(at))
        need, room = (
            stack_memory.estimate(stages[memory.worst(stages)]),
            stack_memory.usable_bytes(at.get("card", account.CARD)),
        )
        bar = [sum(shown["bar"][:-1]), shown["bar"][-1], shown["room"]]
        ends = [need.counted, need.likely - need.counted, room]
        scale = max(room, need.high)
        assert bar == pytest.approx([100 * end / scale for end in ends], abs=0.01)
        bracket = [100 * need.low / scale, 100 * (need.high - need.low) / scale]
        assert shown["range"] == pytest.approx(bracket, abs=0.01)
        assert words[shown["verdict"]] == shown["answers"]["verdict"]
    assert counted > 300 + len(PRESETS) - 1


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Llama 3 8B", 8.03), ("Llama 3 70B", 70.55), ("Llama 3.1 405B", 405.85), ("Qwen3 8B", 8.19),
     ("Qwen3 32B", 32.76), ("Qwen3 30B-A3B", 30.53), ("Mixtral 8x7B", 46.70)],
)  # fmt: skip
def test_a_model_of_the_list_has_the_parameters_of_its_card(name: str, parameters: float) -> None:
    sizes, plan = account.read_plan(PRESETS[name])
    model.check(sizes, plan)
    counted = sum(memory.parameters(sizes, model.Plan(), 0))
    assert round(counted / 1e9, 2) == parameters


def test_the_spread_is_that_of_the_published_runs() -> None:
    shares = [
        measured / stack_memory.estimate(held).likely
        for run, held, measured in stack_memory.published_ranks()
        if run.gb
    ]
    spread = account.measure_spread()
    within = [spread["low"] <= share <= spread["high"] for share in shares]
    assert spread["runs"] == len(shares)
    assert sum(within) / len(within) == pytest.approx(0.8, abs=0.02)


CONFIG = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "vocab_size": 151936,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "tie_word_embeddings": False, "rope_theta": 1e6, "mlp_only_layers": [], "sliding_window": None,
}  # fmt: skip
GPT2_CONFIG = {
    "model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50257,
    "n_positions": 512, "n_inner": None,
}  # fmt: skip
CONFIGS: list[dict[str, Any]] = [
    CONFIG,
    GPT2_CONFIG,
    CONFIG | {"tie_word_embeddings": True, "model_type": "qwen2_moe"},
    CONFIG | {"kv_lora_rank": 512},
    CONFIG | {"model_type": "deepseek_v3"},
    CONFIG | {"hidden_size": "2048"},
    CONFIG | {"vocab_size": None},
    CONFIG | {"attention_bias": True},
    CONFIG | {"tie_word_embeddings": "no"},
    CONFIG | {"mlp_bias": 0},
    GPT2_CONFIG | {"n_positions": "512"},
    CONFIG | {"decoder_sparse_step": 2},
    CONFIG | {"model_type": "__proto__"},
]
PASTE = """async text => {
  const figure = document.querySelector("#figure-memory");
  figure.querySelector("[name=config]").value = text;
  figure.querySelector(".play-paste button").click();
  return [figure.querySelector(".play-paste .play-note").textContent,
    Object.fromEntries([...figure.querySelectorAll(".play-control :is(input, select)")].map(
      field => [field.name, field.type === "checkbox" ? field.checked : field.value]))];
}"""


@pytest.mark.parametrize("config", CONFIGS)
def test_a_pasted_config_is_read_as_fits_reads_it(
    reader: Reader, tmp_path: Path, config: dict[str, Any]
) -> None:
    page = reader.read(PLACES["memory"])
    before = page.evaluate(PASTE, "[")[1]
    answer, fields = page.evaluate(PASTE, json.dumps(config))
    words = load_words("en")["memory"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    try:
        settings = model_config.read_config(tmp_path)
    except model.LayoutError:
        assert answer != words["was-read"]
        assert fields == before
        return
    assert answer.startswith(words["was-read"])
    at = {
        name: value if isinstance(value, bool | str) else int(fields[name])
        for name, value in asdict(model.Model(layers=1, hidden=1, heads=1, vocabulary=1)).items()
    }
    at |= {name: fields[name] for name, value in at.items() if isinstance(value, bool | str)}
    assert model.Model(**at) == model.Model(**settings)


LEARN = """async ([settings, runs]) => {
  const figure = document.querySelector("#figure-memory");
  const [own, nearest] = [...figure.querySelectorAll(".play-paste")].slice(1);
  const set = values => {
    for (const [name, value] of values) {
      const field = figure.querySelector(`.play-control [name=${name}]`);
      if (field.type === "checkbox") field.checked = value; else field.value = value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
  };
  set(settings);
  const [use, forget] = own.querySelectorAll("button");
  forget.click();
  for (const [changes, gib] of runs) {
    set(changes);
    own.querySelector("input").value = gib;
    use.click();
  }
  set(settings);
  const answer = name => figure.querySelector(`[data-answer=${name}]`).textContent;
  const said = own.querySelector("[role=status]").textContent;
  const learned = [answer("likely"), answer("bounds"), said];
  forget.click();
  nearest.querySelector("button").click();
  const rows = [...nearest.querySelectorAll("li")];
  return [learned, answer("likely"), rows.map(row => row.textContent)];
}"""


def test_the_calculator_learns_from_own_runs_and_finds_layouts_as_fits_does(reader: Reader) -> None:
    at = PRESETS["Llama 3 70B"] | CARDS | {"data": 4, "tensor": 4, "micro_batch": 2}
    own = [({"tensor": 8}, 41.0), ({"micro_batch": 1}, 60.5)]
    settings = [(k, v) for k, v in at.items() if k not in ("model", "program")]
    runs = [([*changes.items()], gib) for changes, gib in own]
    learned, likely, layouts = reader.read(PLACES["memory"]).evaluate(LEARN, [settings, runs])
    words = load_words("en")["memory"]
    at_first, size = dict(at), embed.format_bytes
    measured = []
    for changes, gib in own:
        at_first |= changes
        measured.append((stack_memory.worst_rank(*account.read_plan(at_first)), gib * 2**30))
    sizes, plan = account.read_plan(at)
    rank = stack_memory.worst_rank(sizes, plan)
    need = stack_memory.estimate(rank, measured)
    bounds = words["bounds-own"].format(low=size(need.low), high=size(need.high))
    assert learned == [size(need.likely), bounds, words["own-runs"].format(runs=2)]
    assert likely == size(stack_memory.estimate(rank).likely)  # all forgotten
    room = stack_memory.usable_bytes("H100")
    plans = fits.nearest(
        sizes, plan, lambda plan: stack_memory.estimate(stack_memory.worst_rank(sizes, plan)), room
    )
    assert plans
    for changed, row in zip(plans, layouts, strict=True):
        names = [name for name in ("tensor", "stages", "context", "micro_batch", "zero", "expert")
                 if getattr(changed, name) != getattr(plan, name)]  # fmt: skip
        assert all(words[name] in row for name in names), (row, names)
        assert row.count(" · ") + 1 == len(fits.describe(changed, plan).split("--")) - 1


def test_a_run_that_cannot_be_is_not_learned_and_no_refused_layout_fits(reader: Reader) -> None:
    page, words = reader.read(PLACES["memory"]), load_words("en")["memory"]
    preset = PRESETS["Llama 3 8B"] | CARDS
    settings = [(k, v) for k, v in preset.items() if k not in ("model", "program")]
    rank = stack_memory.worst_rank(*account.read_plan(preset))
    state = sum(rank[kind] for kind in ("weights", "gradients", "optimizer")) / 2**30
    below = words["own-below"].format(state=f"{state:#.3g}")
    for gib, sentence in [(0, words["own-not"]), (2**20, words["own-not"]), (0.9 * state, below)]:
        assert page.evaluate(LEARN, [settings, [([], gib)]])[0][2] == sentence
    page.evaluate(TURN, ["memory", [[*settings, ("tensor", 3)]]])
    for button in ("own-use", "nearest-find"):
        page.locator("button", has_text=words[button]).dispatch_event("click")
    messages = page.locator("#figure-memory .play-paste [role=status]").all_text_contents()[1:]
    assert messages == [words["not-heads"].format(parts=3, whole=preset["heads"])] * 2


PRESS = """([name, index]) => {
  const figure = document.querySelector(`#figure-${name}`);
  const buttons = [...figure.querySelectorAll("button:not(.grid-rank ~ .grid-rank)")];
  figure.querySelectorAll("[name=measured]").forEach(field => { field.value = 60; });
  buttons[index]?.click();
  const found = figure.querySelectorAll(".play-nearest button");
  return [buttons.length, figure.textContent, found.length];
}"""


@pytest.mark.parametrize("name", PLACES)
def test_any_button_may_be_pressed_first(reader: Reader, name: str) -> None:
    texts, layouts, index, count = "", 0, 0, 1
    while index < count:
        page = reader.read(PLACES[name])
        count, text, rows = page.evaluate(PRESS, [name, index])
        assert reader.wrong == [], index
        texts, layouts, index = texts + text, layouts + rows, index + 1
    if name == "memory":
        assert load_words("en")["memory"]["own-runs"].format(runs=1) in texts
        assert layouts > 0  # layouts that fit


def test_a_schedule_is_drawn_as_it_is_simulated(reader: Reader) -> None:
    wanted = [*itertools.product(schedule.build_schedules(), schedule.BACKWARDS)]
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
            "bubble": embed.format_percent(bubble(timeline)),
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


# How near the numbers of boxes come to their edges, in px; what is hidden has no width.
NEAR = """all => all.map(i => [i.getBoundingClientRect(), i.parentElement.getBoundingClientRect()])
  .filter(([text]) => text.width)
  .map(([text, box]) => Math.min(text.left - box.left, box.right - 1 - text.right))"""


@pytest.mark.parametrize("width", [390, 1440])
def test_the_first_schedule_is_seen_whole_and_no_number_touches_an_edge(
    open_reader: OpenReader, width: int
) -> None:
    reader = open_reader(viewport={"width": width, "height": 844})
    page = reader.read(PLACES["schedule"])
    scroll = page.locator("#figure-schedule .play-scroll")
    assert scroll.evaluate("one => one.scrollWidth - one.clientWidth") == 0
    margins = scroll.locator("i").evaluate_all(NEAR)
    assert len(margins) == 64
    assert min(margins) >= 1.5
    for micro_batches in (12, 16):
        page.evaluate(TURN, ["schedule", [[("microBatches", micro_batches)]]])
        margins = scroll.locator("i").evaluate_all(NEAR)
        assert len(margins) >= 4 * micro_batches  # every backward has its number
        assert min(margins) >= 1


LINKS = [
    *itertools.product(collective.STEPS, ("gloo", "shared-memory", "pytorch"), (2, 64, 1024),
                       (2**10, 2**18, 2**30)),
]  # fmt: skip


def test_a_collectives_time_is_the_formulas_and_the_measured_point_the_results(
    reader: Reader,
) -> None:
    presets = collective.load_presets(ROOT)
    points = {(p.link, p.op, p.bytes): p.seconds for p in collective.load_points(ROOT)}
    turns: Turns = [
        [("op", op), ("preset", link), ("ranks", ranks), ("payload", payload)]
        for op, link, ranks, payload in LINKS
    ]
    for (op, link, ranks, payload), answer in zip(
        LINKS, turn_controls(reader, "collective", turns), strict=True
    ):
        call, constants = Call(op, payload, ranks), presets[link][op]
        seconds = collective.predict_seconds(constants, call)
        sent = call.wire / (constants.bandwidth * 1e9)
        measured = points.get((link, op, payload)) if ranks == 2 else None
        assert answer["answers"] == {
            "time": embed.format_seconds(seconds),
            "latency": embed.format_percent(1 - sent / seconds),
            "busbw": f"{embed.format_bytes(call.wire / seconds)}/s",
            "measured": embed.format_seconds(measured) if measured else "–",
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


def test_constants_of_ones_own_move_the_curve_and_have_no_measured_point(reader: Reader) -> None:
    constants = Constants(5, 2, 50)
    answer = turn_controls(reader, "collective", [
        [("ranks", 8), ("base", 5), ("hop", 2), ("bandwidth", 50), ("payload", 2**20)]
    ])[0]  # fmt: skip
    assert answer["answers"]["time"] == embed.format_seconds(
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


def test_each_label_of_a_time_axis_is_under_a_line_that_is_seen(open_reader: OpenReader) -> None:
    reader = open_reader(viewport={"width": 390, "height": 844})
    page = reader.read("theory/10-reading-a-trace/")
    middles = """selector => [...document.querySelectorAll(selector)].map(part => {
      const { left, width, height } = part.getBoundingClientRect();
      const { borderLeftColor, borderLeftStyle } = getComputedStyle(part);
      return [left + width / 2, height, borderLeftStyle, borderLeftColor];
    })"""
    labels = page.evaluate(middles, "#figure-trace .play-x")
    lines = page.evaluate(middles, "#figure-trace .play-track:nth-child(2) > .play-rule")
    assert [line[0] for line in lines] == pytest.approx([label[0] for label in labels], abs=1)
    for _, height, style, colour in lines:
        assert height > 20
        assert style == "solid"
        assert colour != "rgba(0, 0, 0, 0)"


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


@pytest.mark.parametrize("language", ["en", "es"])
def test_every_figure_says_what_to_try(site: Path, language: str) -> None:
    words, home = load_words(language), site / ("es" if language == "es" else "")
    for figure, place in (PLACES | {"trace": "theory/10-reading-a-trace/"}).items():
        html = (home / place / "index.html").read_text("utf-8")
        _, _, html = html.partition(f'id="figure-{figure}"')
        sentence = html.partition('<p class="play-try">')[2].partition("</p>")[0]
        assert unescape(sentence) == words[figure]["try"]


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
