"""The worked examples of theory 8 and 9 are what the formulas make of them, in both languages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from costlab.layouts.memory import rank_lines
from costlab.layouts.model import Plan
from shardlab.proofs.formulas import data_parallel, fully_sharded, tensor_parallel
from sitelab.figures.embed import format_bytes
from tests.docs.page import ROOT
from tests.docs.theory.account import OF_ROWS, make_gpt, make_plan

TENSOR, TOKENS = 8, 2048
MODEL = make_gpt(layers=96, hidden=12288, heads=96, vocabulary=51200)


@pytest.mark.parametrize("page", ["09-choosing-a-layout.md", "09-choosing-a-layout.es.md"])
def test_what_a_layer_sends_over_the_tensor_axis_is_computed(page: str) -> None:
    row = re.search(
        r"^\| tensor \|.*\|.*\|.*\|$", (ROOT / "docs/theory" / page).read_text("utf-8"), re.M
    )
    tokens = TOKENS
    sent = [
        tensor_parallel.block(
            tokens=tokens, hidden=MODEL.hidden, ranks=TENSOR, itemsize=2, sequence_parallel=cut
        ).wire
        for cut in (False, True)
    ]  # fmt: skip
    times = [count * TENSOR // (TENSOR - 1) // (tokens * MODEL.hidden) for count in sent]
    assert row and times == [16, 20]
    assert all(re.search(rf"\b{count}\b", row[0]) for count in times)


# An H100 by its data sheet, and what theory 9 assumes that kernels reach of it.
SHEET, REACHED, NVLINK, NETWORK = 989e12, 400e12, 450e9, 50e9
GRADIENTS = (2, 4)  # bytes of an element: reduced in bf16, and as Megatron does


def words(page: str) -> str:
    """Return a page's text on one line, with ordinary spaces and no separators in numbers."""
    text = (ROOT / "docs/theory" / page).read_text("utf-8").replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(r"(?<=\d)[, ](?=\d{3}\b)", "", " ".join(text.split()))


def sharded(ranks: int, gradient: int) -> float:
    """Return the bytes that a rank sends for one parameter of a unit and one micro-batch."""
    units = [0, 10 * ranks]
    return fully_sharded(units, ranks=ranks, itemsize=2, gradient_itemsize=gradient).wire / units[1]


def thresholds(gradient: int) -> list[float]:
    """Return the tokens of a micro-batch from which each link keeps up, on ever more ranks."""
    parts = sharded(2, gradient) * 2  # without (d − 1)/d
    return [parts / 6 * REACHED / link for link in (NVLINK, NETWORK)]


@pytest.mark.parametrize("page", ["09-choosing-a-layout.md", "09-choosing-a-layout.es.md"])
def test_the_tokens_that_hide_sharded_data_are_computed_for_both_widths_of_gradients(
    page: str,
) -> None:
    text = words(page)
    assert f"{REACHED / SHEET:.0%}".replace("%", " %") in text
    bf16, fp32 = (thresholds(gradient) for gradient in GRADIENTS)
    assert [high / low for low, high in zip(bf16, fp32, strict=True)] == [4 / 3, 4 / 3]
    for (lower, far), between in ((bf16, r"\D+"), (fp32, " (?:and|y) ")):
        assert re.search(rf"\b{lower:.0f}\b{between}{far:.0f}\b", text)
    rows = re.findall(r"\| T(?:·m)? > [^|]+ \|", text)
    assert rows == ["| T·m > g/3 · F/B |", "| T > (4 + g)/6 · F/B |"]
    for gradient in GRADIENTS:
        replicas = 2 * data_parallel([gradient * 1000], ranks=2).wire / 1000
        assert replicas / 6 == gradient / 3
        assert 2 * sharded(2, gradient) == 4 + gradient


@pytest.mark.parametrize("page", ["09-choosing-a-layout.md", "09-choosing-a-layout.es.md"])
def test_the_share_that_tensor_parallelism_sends_is_computed(page: str) -> None:
    text, tokens, layer = words(page), TOKENS, 12 * MODEL.hidden**2
    operations = 6 * layer * tokens / TENSOR
    shares = []
    for sequence_parallel in (False, True):
        sent = tensor_parallel.block(
            tokens=tokens, hidden=MODEL.hidden, ranks=TENSOR, itemsize=2,
            sequence_parallel=sequence_parallel,
        ).wire  # fmt: skip
        share = [sent / link / (operations / REACHED) for link in (NVLINK, NETWORK)]
        factor = share[0] * MODEL.hidden * NVLINK / (TENSOR - 1) / REACHED
        assert factor == pytest.approx((20 if sequence_parallel else 16) / 72)
        assert f"{20 if sequence_parallel else 16}/72" in text
        shares.append([f"{each:.0%}".replace("%", " %") for each in share])
    plain, cut = shares
    for each, with_sequence in zip(plain, cut, strict=True):
        assert each in text
        assert with_sequence in text


@pytest.mark.parametrize("page", ["09-choosing-a-layout.md", "09-choosing-a-layout.es.md"])
def test_the_tensor_ranks_that_send_least_beside_sharded_data_are_computed(page: str) -> None:
    hidden, tokens, gradient, layer = 8192, 4096, 4, 12 * 8192**2  # tokens: of a rank

    def sent(ranks: int) -> float:
        """Seconds of a rank's transfers for one layer and a micro-batch of `ranks` shares."""
        gathered = 2 * sharded(2, gradient) * layer / ranks / NETWORK
        block = tensor_parallel.block(
            tokens=tokens * ranks, hidden=hidden, ranks=ranks, itemsize=2, sequence_parallel=True
        )  # fmt: skip
        return (gathered + block.wire / NVLINK) / 1

    formula = (0.6 * (4 + gradient) * hidden / tokens * NVLINK / NETWORK) ** 0.5
    text = words(page)
    assert f"T/t = {tokens}" in text
    assert re.search(rf"\b{formula:.0f} ranks", text)
    assert r"0.6\,(4+g)" in text
    least = min(range(1, 65), key=sent)
    assert abs(least - formula) < 1


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
    once = ("token-numbers", "embedding-mask", "final-norm-input", "head-input")
    once += (*OF_ROWS, "final-norm-statistics")
    sbh = TOKENS * MODEL.hidden

    def activations(plan: Plan) -> float:
        """Bytes of all layers' worth, without what is there once a micro-batch or a row."""
        return sum(count for (kind, key), count in rank_lines(MODEL, plan, 0).items()
                   if kind == "activations" and key not in once)  # fmt: skip

    expected = []
    for saving in SAVED:
        whole = activations(make_plan(tensor=TENSOR, stages=8, micro_batches=64, **saving))
        layer = whole / MODEL.layers
        expected.append((f"{layer / sbh:g}", f"{layer / 1e6:.0f}", format_bytes(whole)))
    shown = LAYER.findall(text)
    assert shown == expected
    assert format_bytes(activations(make_plan()) / MODEL.layers) in text
