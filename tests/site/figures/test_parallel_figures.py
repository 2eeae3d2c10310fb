"""FSDP's step, the process grid, and what every figure keeps in the page's address."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from costlab.layouts.memory import parameters, rank_bytes
from costlab.layouts.model import Plan
from costlab.layouts.model_config import FACTS, FAMILIES
from shardlab.grid.layout import TOKENS
from sitelab.figures import embed, fsdp, grid, zero
from sitelab.figures import memory as account
from sitelab.figures.embed import load_words
from tests.site.figures.test_figures import PLACES, TURN, Turns, turn_controls
from tests.site.reader import Reader

WORDS = {name: load_words("en")[name] for name in ("controls", "fsdp", "grid", "memory")}


def make_steps(*values: Any) -> list[dict[str, Any]]:
    return [dict(zip(fsdp.INITIAL, one, strict=True)) for one in itertools.product(*values)]


STEPS = [
    *make_steps(fsdp.GUARDS, (4,), (3,), (False,), ("pre",), (True, False), ("tutor",), (2,)),
    *make_steps(("fsdp1", "shardlab"), (6,), (6,), (True,), fsdp.PREFETCHES, (True,),
                ("Llama 3 70B",), (64,)),
    *make_steps(fsdp.GUARDS, (2, 5, 8), fsdp.COLLECTIVES, (False, True), fsdp.PREFETCHES,
                (True, False), ("Llama 3 8B",), (8,)),
]  # fmt: skip


def test_a_step_of_fsdp_is_drawn_as_it_is_simulated(reader: Reader) -> None:
    # What the implementation changes is turned after it.
    turns: Turns = [list(at.items()) for at in STEPS]
    for at, answer in zip(STEPS, turn_controls(reader, "fsdp", turns, at_once=True), strict=True):
        step = fsdp.simulate_figure(at)
        assert answer["answers"] == fsdp.format_answers(at, WORDS["fsdp"])
        memory = [
            lane
            for kind in ("parameters", "gradient")
            for lane in fsdp.pack_lanes([span for span in step.memory if span.kind == kind])
        ]
        for spans, boxes in zip([step.communication, step.computing, *memory], answer["boxes"],
                                strict=True):  # fmt: skip
            assert [(kind, int(text)) for kind, text, *_ in boxes] == [
                (span.kind[-1], span.unit) for span in spans
            ]
            places = [place for *_, start, width in boxes for place in (start, start + width)]
            times = [100 * time / step.end for span in spans for time in (span.start, span.end)]
            assert places == pytest.approx(times, abs=1e-3)
        never = at["guard"] == "fsdp2" and at["backward_prefetch"] != "pre"
        assert answer["said"] == ({"backward_prefetch": WORDS["fsdp"]["always"]} if never else {})
        assert not answer["isOld"]
    labels = [WORDS["fsdp"][key] for key in ("wire", "computing", "parameters", "gradient")]
    places = """all => all.map(one => [one.textContent, one.getBoundingClientRect().top])"""
    shown = reader.page.locator("#figure-fsdp .play-stage").evaluate_all(places)
    assert [label for label, _ in shown] == labels  # one for all lanes of a kind
    lanes = reader.page.locator("#figure-fsdp .play-track").evaluate_all(places)
    first = [0, 1, 2, 2 + len(fsdp.pack_lanes([s for s in step.memory if s.kind == "parameters"]))]
    assert all(label[1] >= lanes[lane][1] for label, lane in zip(shown, first, strict=True))
    assert shown[2][1] < lanes[first[3]][1]


def test_the_units_of_a_step_have_the_bytes_of_their_models_blocks() -> None:
    assert fsdp.block_bytes("Llama 3 8B") == 2 * 218_112_000
    assert fsdp.block_bytes("Llama 3 70B") == 2 * 855_654_400
    assert fsdp.block_bytes("tutor") == 4 * 198_272


def test_a_rank_holds_in_each_stage_of_zero_what_the_account_counts(reader: Reader) -> None:
    held = """all => all.map(row => [...row.children].map(box => [
      parseFloat(box.style.width), parseFloat(box.firstChild.style.width)]))"""
    settings = [zero.INITIAL, *(dict(zip(zero.INITIAL, values, strict=True)) for values in
                itertools.product(zero.RECIPES, (1, 8, 64), zero.PARAMETERS[::3]))]  # fmt: skip
    page = reader.read(PLACES["zero"])
    for at in settings:
        (shown,) = page.evaluate(TURN, ["zero", [list(at.items())]])
        assert shown["answers"] == zero.format_answers(at)
        whole = zero.count_bytes(at, 0)
        sizes = {kind: embed.format_bytes(count) for kind, count in whole.items()}
        assert shown["sums"] == sizes
        rows = page.locator("#figure-zero .zero-state").evaluate_all(held)
        for stage, row in enumerate(rows):
            layout = FACTS["programs"][at["recipe"]] | {"data": at["ranks"], "zero": stage}
            model, plan = account.read_plan(account.load_presets()["Llama 3 8B"] | layout)
            bytes_of_rank = rank_bytes(model, plan, 0)
            scale = at["parameters"] / sum(parameters(model, Plan(), 0))
            counted = [
                bytes_of_rank[kind] * scale for kind in ("weights", "gradients", "optimizer")
            ]
            assert list(zero.count_bytes(at, stage).values()) == pytest.approx(counted)
            drawn = [wide * part / 1e4 * sum(whole.values()) for wide, part in row]
            assert drawn == pytest.approx(counted, rel=1e-3)


def test_a_moment_of_a_step_says_what_runs_and_is_played(reader: Reader) -> None:
    page = reader.read(PLACES["fsdp"])
    slider, text = page.locator(".play-player input"), page.locator(".play-moment")
    slider.focus()
    page.keyboard.press("Home")
    step = fsdp.simulate_figure(fsdp.INITIAL)
    times = sorted({time for span in (*step.communication, *step.computing)
                    for time in (span.start, span.end)})  # fmt: skip
    words = WORDS["fsdp"]

    def running(key: str, spans: list[Any], now: float) -> str:
        kinds = ("parameters", "gradient")
        found = [s for s in spans if s.start <= now < s.end and (key not in kinds or key == s.kind)]
        found.sort(key=lambda span: span.unit)
        names = [str(s.unit) if key in kinds else f"{words[f'key-{s.kind}']} {s.unit}"
                 for s in found]  # fmt: skip
        return words[f"now-{key}"].format(list=", ".join(names)) if found else words[f"no-{key}"]

    parts = {"wire": step.communication, "computing": step.computing, "parameters": step.memory,
             "gradient": step.memory}  # fmt: skip
    sentences = [
        words["moment"].format(now=f"{now:g}", **{k: running(k, v, now) for k, v in parts.items()})
        for now in times[:-1]
    ]
    assert any(words["no-gradient"] in sentence for sentence in sentences)
    for sentence in sentences:
        assert text.text_content() == slider.get_attribute("aria-valuetext") == sentence
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.locator(".play-player button").first.click()
    expect(slider).to_have_value("7")
    page.locator(".play-player button").first.click()
    assert page.locator(".play-box[data-later]").count() > 0


SIZES = [(2, 1, 2, 2, 1), (2, 2, 2, 2, 2), (2, 2, 1, 4, 4), (4, 1, 2, 1, 1), (1, 4, 2, 2, 8),
         (1, 1, 2, 2, 4)]  # fmt: skip


def test_every_order_has_the_groups_of_the_layout(reader: Reader) -> None:
    names = ("tensor", "context", "pipeline", "data", "expert")
    grids = [
        dict(zip(names, sizes, strict=True)) | {"order": "-".join(order), "host": 4}
        for sizes in SIZES
        for order in itertools.permutations(TOKENS.values())
    ]
    page = reader.read(PLACES["grid"])
    drawn = page.evaluate(
        """grids => {
          const data = JSON.parse(document.querySelector("#figure-grid script").textContent);
          return grids.map(at => window.figures.gridGroups(at, data.rows));
        }""",
        grids,
    )
    refused = 0
    for at, rows in zip(grids, drawn, strict=True):
        try:
            layouts = grid.make_layouts(at)
        except ValueError:
            refused += 1
            assert rows in ("not-last", "not-experts"), at
            continue
        assert not isinstance(rows, str), (at, rows)
        for row, (tokens, of_experts) in zip(rows, grid.ROWS.values(), strict=True):
            layout = layouts[of_experts]
            assert row["all"] == layout.groups(tokens), at
            assert row["of"] == [layout.group_of(n, tokens) for n in range(layout.world_size)], at
    assert 0 < refused < len(grids) / 2


READ = """() => ({
  chosen: document.querySelector("#figure-grid [data-chosen] b").textContent,
  rows: [...document.querySelectorAll("#figure-grid [data-row]")].map(row => [
    row.dataset.row, row.querySelector(".grid-group").textContent,
    row.querySelector(".grid-inside").textContent]),
  lit: [...document.querySelectorAll("#figure-grid .grid-rank")].map(
    rank => rank.dataset.axis || ""),
})"""


def test_pointing_and_arrows_light_the_groups_of_a_rank(reader: Reader) -> None:
    page = reader.read(PLACES["grid"])

    def compare(at: dict[str, Any], rank: int) -> None:
        shown, rows = page.evaluate(READ), grid.count_groups(at, rank)
        assert shown["chosen"] == str(rank)
        assert shown["rows"] == [
            [row.name, f"[{', '.join(map(str, row.group))}]",
             f"{row.inside} of {row.groups}" if len(row.group) > 1 else "–"]
            for row in rows
        ]  # fmt: skip
        dense = [row for row in rows if row.name in grid.DENSE]
        assert shown["lit"] == [
            next((row.name for row in dense if n in row.group and n != rank), "")
            for n in range(len(shown["lit"]))
        ]

    compare(grid.INITIAL, grid.RANK)
    page.locator("#figure-grid .grid-rank").nth(2).dispatch_event("pointerenter")
    compare(grid.INITIAL, 2)
    page.locator("#figure-grid .grid-rank").nth(2).dispatch_event("pointerleave")
    page.locator("#figure-grid .grid-rank").nth(5).focus()
    for key in ("ArrowUp", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    compare(grid.INITIAL, 3)
    at = grid.INITIAL | {"context": 2, "data": 4, "expert": 4, "host": 8, "order": grid.ORDERS[2]}
    turn_controls(reader, "grid", [list(at.items())])
    compare(at, grid.RANK)


IMPOSSIBLE: list[tuple[dict[str, Any], str, str]] = [
    ({"expert": 8}, "expert", "8 expert ranks"), ({"expert": 2, "data": 1}, "data", "divide the 1"),
    ({"expert": 2, "order": grid.ORDERS[5]}, "order", "put pp last"),
]  # fmt: skip


def test_a_grid_that_cannot_be_is_refused_beside_its_field_and_leaves_the_old_one(
    reader: Reader,
) -> None:
    page = reader.read(PLACES["grid"])
    for turn, field, refusal in IMPOSSIBLE:
        [answer] = turn_controls(reader, "grid", [list(turn.items())])
        assert answer["isOld"]
        assert list(answer["said"]) == [field]
        assert refusal in answer["said"][field]
        assert page.locator("#figure-grid .grid-rank").count() == 8


def test_of_a_grid_of_4096_ranks_the_first_64_are_drawn_and_all_are_counted(
    reader: Reader,
) -> None:
    at = dict.fromkeys(grid.DENSE, 8)
    [answer] = turn_controls(reader, "grid", [list(at.items())])
    assert answer["said"] == {
        "pipeline": WORDS["grid"]["too-many"].format(ranks=4096, most=grid.MOST)
    }
    assert not answer["isOld"]
    assert reader.page.locator("#figure-grid .grid-rank").count() == grid.MOST
    rows = {row[0]: row[1:] for row in reader.page.evaluate(READ)["rows"]}
    for row in grid.count_groups(grid.INITIAL | at, grid.RANK):
        members, inside = rows[row.name]
        assert members.startswith(f"[{', '.join(map(str, row.group[:4]))}")
        assert members.endswith(f"{row.group[-1]}]")
        if len(row.group) > 1:
            assert inside == f"{row.inside} of {row.groups}"


def test_the_address_has_the_settings_and_brings_them_back(reader: Reader) -> None:
    page = reader.read(PLACES["schedule"])
    turn_controls(reader, "schedule", [[("kind", "zb-h1"), ("stages", 6)]])
    page.locator("#figure-schedule .play-share button").click()
    note = page.locator("#figure-schedule .play-note")
    note.wait_for()
    assert note.text_content() in (WORDS["controls"]["shared"], WORDS["controls"]["in-address"])
    query, wanted = page.url.partition("?")[2], "figure=schedule&kind=zb-h1&stages=6"
    assert query == f"{wanted}#figure-schedule"
    page.reload()
    assert page.locator("#figure-schedule .play-track").count() == 6
    assert page.locator("#figure-schedule [name=kind]").input_value() == "zb-h1"


FIELDS = """name => Object.fromEntries([...document.querySelectorAll(
  `figure[data-figure=${name}] .play-control :is(input, select)`)].map(
  field => [field.name, field.type === "checkbox" ? field.checked : field.value]))"""


def test_an_address_brings_back_what_a_model_sets_otherwise(reader: Reader) -> None:
    page = reader.read(PLACES["memory"])
    models = page.locator("#figure-memory [name=model] option").evaluate_all("all => all.length")
    for number in range(models):
        before = page.evaluate(FIELDS, "memory")
        page.locator("#figure-memory [name=model]").select_option(index=number)
        for name, value in before.items():  # as the page, or the model before, had them
            field = page.locator(f"#figure-memory [name={name}]")
            if name in ("sequence", "tensor", "micro_batch", "global_batch") and value:
                field.fill(value)
        page.locator("#figure-memory .play-share button").click()
        page.locator("#figure-memory .play-share .play-note").wait_for()
        shared = page.evaluate(FIELDS, "memory")
        page.reload()
        assert page.evaluate(FIELDS, "memory") == shared


def test_an_address_is_read_as_far_as_a_control_may_have_it(reader: Reader) -> None:
    asked = "model=Llama+3+70B&zero=1&layers=0&heads=1.5&data=-3&hat=%3Cb%3E&sequence=4096"
    page = reader.read(f"{PLACES['memory']}?figure=memory&{asked}")
    values = {n: page.locator(f"#figure-memory [name={n}]").input_value()
              for n in ("layers", "hidden", "ffn", "sequence")}  # fmt: skip
    assert values == {"layers": "80", "hidden": "8192", "ffn": "28672", "sequence": "4096"}
    sentence = WORDS["controls"]["not-in-address"]
    sentence_shown = page.locator("#figure-memory .play-share .play-note").text_content()
    assert sentence_shown == sentence.format(setting="hat=<b>")
    for name, value in (("layers", "0"), ("heads", "1.5"), ("data", "-3")):
        sentence_shown = page.locator(f"#figure-memory-{name}").text_content()
        assert sentence_shown == sentence.format(setting=f"{name}={value}")
    page.locator("#figure-memory [name=hidden]").fill("0")
    label = WORDS["memory"]["hidden"]
    sentence_shown = page.locator("#figure-memory-hidden").text_content()
    assert sentence_shown == WORDS["controls"]["not-between"].format(
        label=label, least=1, most=1 << 20
    )


LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu",
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
    "vocab_size": 50257, "activation_function": "gelu_new", "n_inner": None,
}  # fmt: skip


REFUSED: list[tuple[Any, str, dict[str, str]]] = [
    ("{", "not-json", {}), ("[]", "not-json", {}), ("7", "not-json", {}),
    (LLAMA | {"model_type": "deepseek_v3"}, "not-type",
     {"type": "deepseek_v3", "types": ", ".join(FAMILIES)}),
    (LLAMA | {"kv_lora_rank": 512, "$&": 1}, "not-known", {"keys": "$&, kv_lora_rank"}),
    (LLAMA | {"attention_bias": True}, "not-counted", {"key": "mlp_bias, attention_bias"}),
    (LLAMA | {"hidden_size": "4096"}, "not-key", {"key": "hidden_size"}),
    (GPT2 | {"n_layer": 0}, "not-key", {"key": "n_layer"}),
]  # fmt: skip


def test_a_config_that_cannot_be_counted_is_refused_in_words(reader: Reader) -> None:
    page = reader.read(PLACES["memory"])
    before = page.locator("#figure-memory [data-sum=whole]").text_content()
    for config, key, value in REFUSED:
        text = config if isinstance(config, str) else json.dumps(config)
        assert paste(page, text) == WORDS["memory"][key].format(**value)
        assert page.locator("#figure-memory [data-sum=whole]").text_content() == before


def test_a_pasted_config_without_experts_leaves_those_before_and_says_what_stops_it(
    reader: Reader,
) -> None:
    page, words = reader.read(PLACES["memory"]), WORDS["memory"]
    figure = page.locator("figure[data-figure=memory]")
    page.locator("#figure-memory [name=model]").select_option(label="Mixtral 8x7B")
    assert paste(page, json.dumps(LLAMA)) == words["was-read"]
    assert figure.get_attribute("data-old") is None
    answer = paste(page, json.dumps(LLAMA | {"num_hidden_layers": 7, "num_attention_heads": 7}))
    assert figure.get_attribute("data-old") is not None
    assert answer.startswith(words["was-read"] + " ") and "7" in answer


def paste(page: Any, text: str) -> str:
    part = page.locator(".play-paste").first
    if not part.locator("textarea").is_visible():
        part.locator("summary").click()
    part.locator("textarea").fill(text)
    part.locator("button").click()
    return str(part.locator(".play-note").text_content())


def test_without_a_script_the_lit_ranks_are_those_of_the_example(site: Path) -> None:
    for page in ("theory/04-pipelines-and-the-grid", "labs/01-three-d"):
        html = (site / page / "index.html").read_text("utf-8")
        for axis, rank in (("tensor", 4), ("data", 7), ("pipeline", 1)):
            assert f'data-axis="{axis}"><b>{rank}</b>' in html
