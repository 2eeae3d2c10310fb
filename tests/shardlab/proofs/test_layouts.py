"""The worked examples of theory 8 and 9 are what the formulas make of them, in both languages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shardlab.pipeline.schedule import by_name
from shardlab.proofs.formulas import memory, tensor_parallel
from shardlab.proofs.formulas.memory import Model, Plan, total
from shardlab.proofs.schedules.timeline import bubble, simulate
from sitelab.figures.quantities import format_percent, format_bytes
from tests.docs.page import ROOT

BATCH, CARDS, TENSOR = 1536, 1024, 8
MODEL = Model(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200)
ROW = re.compile(
    r"^\| (\d+) \| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (\d+) \| (.+?) \|$", re.M
)


@pytest.mark.parametrize("page", ["09-choosing-a-layout.md", "09-choosing-a-layout.es.md"])
def test_every_row_of_the_example_is_computed(page: str) -> None:
    rows = ROW.findall((ROOT / "docs/theory" / page).read_text("utf-8"))
    assert len(rows) == 5
    for p, d, cut, *said in rows:
        stages, data = int(p), int(d)
        assert TENSOR * stages * data == CARDS
        micro_batches = BATCH // data
        plan = Plan(
            tensor=TENSOR, stages=stages, data=data, micro_batches=micro_batches,
            sequence_parallel=True, recompute="selective", zero=int(cut[-1] == "1"),
        )  # fmt: skip
        activations, whole = total(MODEL, plan, "activation"), total(MODEL, plan)
        lost = bubble(simulate(by_name("1f1b", stages, micro_batches)))
        told = [format_bytes(whole - activations), format_bytes(activations), format_bytes(whole)]
        assert said == [*told, str(micro_batches), format_percent(lost)]


@pytest.mark.parametrize("page", ["09-choosing-a-layout.md", "09-choosing-a-layout.es.md"])
def test_what_a_layer_sends_over_the_tensor_axis_is_computed(page: str) -> None:
    row = re.search(
        r"^\| tensor \|.*\|.*\|.*\|$", (ROOT / "docs/theory" / page).read_text("utf-8"), re.M
    )
    tokens = MODEL.sequence
    sent = [
        tensor_parallel.block(
            tokens=tokens, hidden=MODEL.hidden, ranks=TENSOR, itemsize=2, sequence_parallel=cut
        ).wire
        for cut in (False, True)
    ]  # fmt: skip
    times = [one * TENSOR // (TENSOR - 1) // (tokens * MODEL.hidden) for one in sent]
    assert row and times == [16, 20]
    assert all(re.search(rf"\b{one}\b", row[0]) for one in times)


# As theory 8's table has them, row by row.
SAVED: tuple[dict[str, Any], ...] = (
    {},
    {"sequence_parallel": True},
    {"sequence_parallel": True, "recompute": "selective"},
    {"recompute": "full"},
)
LAYER = re.compile(r"^\| .+? \| ([\d.]+) \| (\d+) \| ([\d.]+ GB) \|$", re.M)


@pytest.mark.parametrize("page", ["08-memory.md", "08-memory.es.md"])
def test_what_a_layer_keeps_is_computed(page: str) -> None:
    text = (ROOT / "docs/theory" / page).read_text("utf-8")
    terms = {term.key for term in (*memory.LAYER, *memory.CORE, memory.CHECKPOINT)}
    sbh = MODEL.sequence * MODEL.hidden

    def kept(plan: Plan) -> float:
        """Bytes of all layers' worth, without what is there once a micro-batch."""
        return sum(line.bytes for line in memory.account(MODEL, plan) if line.key in terms)

    expected = []
    for saving in SAVED:
        whole = kept(Plan(tensor=TENSOR, stages=8, micro_batches=64, **saving))
        layer = whole / MODEL.layers
        expected.append((f"{layer / sbh:g}", f"{layer / 1e6:.0f}", format_bytes(whole)))
    said = LAYER.findall(text)
    assert said == expected
    assert format_bytes(kept(Plan()) / MODEL.layers) in text
