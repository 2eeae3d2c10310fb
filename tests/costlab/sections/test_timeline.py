"""The timeline of a sharded step matches the run, is complete, and can be read by other tools."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from costlab.implementations import tutor
from costlab.sections.fully_sharded import timeline
from costlab.sections.fully_sharded.timeline import Span, WatchedAxis
from shardlab.comm import World
from tests.limits import LIMIT
from tests.shardlab.pool import on_ranks


def record_step(world: World) -> list[Span]:
    return timeline.record(world, 64)


@pytest.fixture(scope="module")
def steps(pool: Any) -> list[list[Span]]:
    """Return one step, as each of two ranks has recorded it."""
    return list(pool(2).run(record_step))


def test_a_step_shows_every_block_and_every_collective_on_every_rank(
    steps: list[list[Span]],
) -> None:
    spans, other_spans = steps
    assert spans == other_spans
    units = ["root", *(f"block {n}" for n in range(tutor.LAYERS))]
    for rank in range(2):
        names = [span.name for span in spans if span.track == f"rank {rank} communication"]
        gathers = {unit: 1 if unit == "root" else 2 for unit in units}  # forward, backward
        for unit in units:
            assert names.count(f"gather {unit}") == gathers[unit], names
            assert names.count(f"reduce {unit}") == 1, names
        computed = {span.name for span in spans if span.track == f"rank {rank} compute"}
        for number, way in itertools.product(range(tutor.LAYERS), ("forward", "backward")):
            assert f"block {number} {way}" in computed
        assert {"head and loss", "AdamW"} < computed


def test_a_thread_computes_one_thing_at_a_time(steps: list[list[Span]]) -> None:
    spans = steps[0]
    assert min(span.start_s for span in spans) == 0
    assert all(span.start_s < span.end_s for span in spans)
    for _, track in itertools.groupby(spans, lambda span: span.track):
        for span, next_span in itertools.pairwise(
            sorted((s for s in track if "compute" in s.track), key=lambda s: s.start_s)
        ):
            assert span.end_s <= next_span.start_s


def test_a_wait_is_a_gap_in_what_the_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1.0)
    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(timeline, "time", clock)
    main = timeline._Main()
    main.mark("block 0 forward")
    clock.now = 2.0
    main.waits(True)
    clock.now = 5.0
    main.waits(False)
    clock.now = 6.0
    main.mark("")
    assert main.spans == [("block 0 forward", 1.0, 2.0), ("block 0 forward", 5.0, 6.0)]


def test_a_gather_is_started_before_the_unit_before_it_computes(steps: list[list[Span]]) -> None:
    spans = steps[0]
    first = {span.name: span for span in reversed(spans) if span.track.startswith("rank 0")}
    for number in range(1, tutor.LAYERS):
        gather_start = first[f"gather block {number}"].start_s
        assert gather_start < first[f"block {number - 1} forward"].start_s


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([("communication", 0, 4), ("compute", 0, 8)], 1.0),
        ([("communication", 0, 4), ("compute", 4, 8)], 0.0),
        ([("communication", 0, 4), ("compute", 0, 1), ("compute", 3, 8)], 0.5),
        # Two collectives at once are one time with something under way.
        ([("communication", 0, 2), ("communication", 1, 4), ("compute", 0, 2)], 0.5),
        ([("communication", 6, 8), ("communication", 0, 2), ("compute", 1, 7)], 0.5),
    ],
)
def test_what_is_hidden_is_under_way_while_the_rank_computes(
    spans: list[tuple[str, float, float]], share: float
) -> None:
    step = [Span(f"rank 0 {kind}", "", begin, end) for kind, begin, end in spans]
    assert timeline.hidden_share(step) == pytest.approx(share)


def test_without_communication_nothing_can_be_hidden() -> None:
    with pytest.raises(ValueError, match="no collective was under way"):
        timeline.hidden_share([Span("rank 0 compute", "", 0, 1)])


@on_ranks(2)
def test_a_collective_lands_when_its_messages_have_come_not_when_it_is_waited_for(
    world: World,
) -> None:
    waits: list[bool] = []
    axis = WatchedAxis(world, lambda kind, *_: kind, waits.append)
    pending = axis.start("all_gather", torch.ones(4))
    give_up = time.monotonic() + LIMIT
    while not axis.flights and time.monotonic() < give_up:
        pass
    assert axis.flights and not waits
    assert pending.wait().tolist() == [1.0] * 4 * world.size
    assert waits == [True, False]
    assert [name for name, _, _ in axis.flights] == ["all_gather"]
