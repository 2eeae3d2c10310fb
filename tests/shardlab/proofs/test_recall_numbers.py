"""The number of a recall card is what shardlab's formulas make of its question."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from notelab.recall.cards import Card, parse_cards
from shardlab.comm import Axis
from shardlab.data.loader import Loader
from shardlab.data.samples import Recipe, Samples, build_indices
from shardlab.grid.layout import Layout
from shardlab.grid.rules import check_world
from shardlab.proofs import formulas
from shardlab.proofs.collective import Call, Traffic
from shardlab.proofs.formulas.gpt import Sizes, micro_batch
from tests.docs.page import ROOT
from tests.docs.theory.account import (
    SHARDLAB,
    count_layer,
    count_parameters,
    make_gpt,
    make_plan,
    state_bytes,
)

KIB, MIB = 1 << 10, 1 << 20
TUTOR = {"tokens": 512, "hidden": 128, "ranks": 2, "itemsize": 4}
SIZES = Sizes(tokens=512, hidden=128, layers=4, itemsize=4, tensor=2)
TUTOR_MODEL = make_gpt(layers=4, hidden=128, heads=4, positions=128, vocabulary=1024)
HEAD = {"tokens": 512, "features": 128, "ranks": 2, "itemsize": 4}


def payload(traffic: Traffic) -> int:
    return sum(call.payload * count for call, count in traffic.all.items())


def sums_of(calls: "Counter[Call]") -> int:
    return sum(count for call, count in calls.items() if call.op == "all_reduce")


def layer_bytes(hidden: int, sequence: int, recompute: str) -> float:
    """Return the bytes that one layer of 32 heads keeps."""
    plan = make_plan(sequence=sequence, recompute=recompute)
    return count_layer(make_gpt(hidden=hidden, heads=32), plan)


def attention_of(kind: str, **widths: int) -> Traffic:
    """What a rank of four sends, with 4 MiB each of queries, keys and values unless told."""
    sizes = {"tokens": 4 * 2048, "queries": 1024, "keys": 1024, "itemsize": 2} | widths
    return formulas.context_attention(kind, ranks=4, **sizes)


def forward_of(kind: str) -> float:
    return Traffic(forward=attention_of(kind).forward).wire


class Numbers:
    """Samples whose tokens are their own number."""

    extra = True

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, sample: int) -> Any:
        return np.array([sample, sample])


def first_read(step: int, batch: int, **axis: int) -> int:
    """The first sample that the loader of a data rank reads at a step."""
    numbers, place = (
        cast(Samples, Numbers()),
        cast(Axis, SimpleNamespace(**axis, size=axis["ranks"])),
    )
    tokens, _ = Loader(numbers, batch, data=place).read(step * batch)
    assert tokens is not None
    return int(tokens[0, 0])


MADE: dict[str, Callable[[], float]] = {
    "docs/theory/01-collectives#gathered": lambda: Call("all_gather", 8 * MIB, 8).wire,
    "docs/theory/01-collectives#reduced": lambda: Call("all_reduce", 256 * KIB, 4).wire,
    "docs/theory/02-tensor-parallelism#block-payload": lambda: payload(formulas.block(**TUTOR)),
    "docs/theory/02-tensor-parallelism#loss-payload": lambda: payload(
        formulas.megatron_cross_entropy(tokens=512, ranks=2)
    ),
    "docs/theory/03-sharded-data-parallelism#stage-three": lambda: (
        formulas.fully_sharded([0, 100_000_000], ranks=8, itemsize=4).wire
    ),
    "docs/theory/03-sharded-data-parallelism#gathered-elements": lambda: (
        formulas.per_parameter_elements([(3, 2), (3,)], 2)
    ),
    "docs/theory/04-pipelines-and-the-grid#sent-by-a-stage": lambda: (
        formulas.pipeline(payload=256 * KIB, micro_batches=8, stage=1, stages=4).wire
    ),
    "docs/theory/04-pipelines-and-the-grid#replicas": lambda: len(
        Layout(tensor=4, pipeline=2, data=8).group_of(0, "dp")
    ),
    "docs/theory/05-experts#gathered-tokens": lambda: 2 * Call("all_gather", 8 * 4 * MIB, 8).wire,
    "docs/theory/05-experts#exchanged-rows": lambda: 2 * Call("all_to_all", 2 * 4 * MIB, 8).wire,
    "docs/theory/06-long-sequences#ring-forward": lambda: forward_of("ring"),
    "docs/theory/06-long-sequences#ulysses-forward": lambda: forward_of("ulysses"),
    "docs/labs/00-ffn-by-hand#four-ranks": lambda: (
        formulas.row_parallel(tokens=3, features=3, ranks=4, itemsize=8).wire
    ),
    "docs/labs/00-ffn-by-hand#eight-units": lambda: payload(
        formulas.column_parallel(tokens=3, features=3, ranks=2, itemsize=8)
    ),
    "docs/labs/00b-write-it#unit-sent": lambda: (
        formulas.fully_sharded([0, 78], ranks=2, itemsize=8).wire
    ),
    "docs/labs/02-allreduce-costs#tutor-sums": lambda: sums_of(micro_batch(SIZES, 0).all),
    "docs/labs/02-allreduce-costs#sum-bytes": lambda: payload(
        formulas.row_parallel(tokens=512, features=512, ranks=2, itemsize=4)
    ),
    "docs/labs/02-allreduce-costs#tutor-state": lambda: (
        state_bytes(SHARDLAB) * count_parameters(TUTOR_MODEL) / 2
    ),
    "docs/labs/04-experts#two-ways-even": lambda: next(
        k
        for k in range(1, 99)
        if Call("all_to_all", k * MIB, 8).wire == Call("all_gather", 8 * MIB, 8).wire
    ),
    "docs/theory/07-from-bin-idx-to-a-batch#samples-of-an-epoch": lambda: len(
        build_indices(np.array([1_000_000], np.int32), range(1), Recipe(sequence=1024)).order
    ),
    "docs/theory/08-memory#scores": lambda: (
        (layer_bytes(64, 64, "none") - layer_bytes(64, 64, "selective")) / 64**2
    ),
    "docs/theory/08-memory#full-recomputation": lambda: layer_bytes(12288, 2048, "full"),
    "docs/theory/09-choosing-a-layout#tokens-for-the-network": lambda: (
        formulas.fully_sharded([0, 600], ranks=2, itemsize=2).wire * 2 / 600 / 6 * 8000
    ),
    "docs/theory/09-choosing-a-layout#micro-batches": lambda: (
        1536 // check_world(1024, tensor=8, pipeline=4)
    ),
    "docs/theory/10-reading-a-trace#forward-sums": lambda: sums_of(micro_batch(SIZES, 0).forward),
    "docs/theory/11-practice#host-threads": lambda: 32 // 8,
    "docs/labs/05-from-text-to-the-batch#step-begins": lambda: first_read(10, 256, ranks=4, rank=3),
    "docs/labs/06-long-sequences#ring-backward": lambda: (
        Traffic(backward=attention_of("ring", keys=512).backward).wire
    ),
    "docs/labs/06-long-sequences#ulysses-ranks": lambda: max(
        ranks for ranks in range(1, 33) if 32 // 2 % ranks == 8 // 2 % ranks == 0
    ),
    "docs/labs/01-three-d#larger-batch": lambda: 4 * count_parameters(TUTOR_MODEL),
    "docs/labs/03-annotated-reading#one-direction": lambda: 600e9 / 2,
    "docs/labs/01-three-d#tensor-sums": lambda: payload(
        formulas.embedding(**TUTOR) + formulas.block(**TUTOR) * 4 + formulas.column_parallel(**HEAD)
    ),
}


def numbered() -> dict[str, Card]:
    """Every card of the workbook's English pages that asks for a number."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if not page.name.endswith(".es.md")]
    cards = (
        card
        for page in pages
        for card in parse_cards(
            page.read_text("utf-8"), page.relative_to(ROOT).as_posix().removesuffix(".md")
        )
    )
    return {card.id: card for card in cards if card.number}


def test_every_number_that_a_card_asks_for_has_its_formula() -> None:
    assert sorted(numbered()) == sorted(MADE)


@pytest.mark.parametrize("name", MADE)
def test_a_cards_number_is_its_formulas(name: str) -> None:
    number = numbered()[name].number
    assert number
    rounded = name.endswith(("#stage-three", "#full-recomputation"))
    assert number.value == (MADE[name]() if not rounded else pytest.approx(MADE[name](), rel=0.001))
