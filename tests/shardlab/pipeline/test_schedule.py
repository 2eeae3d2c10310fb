"""Schedules as lists: order, memory, bubble and messages, for any stages, micro-batches and chunks.

A wrong warm-up shows in the live micro-batches, a wrong group order in the comparison with Megatron
and torch, a message in a wrong place in test_deadlock.py.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardlab.comm import Pending
from shardlab.pipeline.action import (
    Backward,
    Exchange,
    Forward,
    Receive,
    ScheduleError,
    Send,
    Weight,
    computes,
    name,
)
from shardlab.pipeline.neighbours import RECEIVES, Neighbours
from shardlab.pipeline.schedule import (
    by_name,
    forward_only,
    gpipe,
    interleaved,
    one_forward_one_backward,
    zero_bubble,
)
from shardlab.proofs.schedules.__main__ import main
from shardlab.proofs.schedules.timeline import (
    bubble,
    draw_mermaid,
    draw_text,
    peak_live,
    simulate,
)
from tests.shardlab.properties import steady

ROOT = Path(__file__).resolve().parents[3]
STAGES = st.integers(1, 6)
MICROBATCHES = st.integers(1, 12)
COST = st.integers(1, 5)


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Stages, micro-batches, chunks and a group that Megatron allows, or one group where m < p."""
    p, v = draw(st.integers(2, 6)), draw(st.integers(2, 4))
    m = draw(st.integers(1, 16))
    if m <= p:
        return p, m, v, m
    groups = [g for g in range(p, m + 1) if m % g == 0 or m % g >= p]
    return p, m, v, draw(st.sampled_from(groups))


@pytest.mark.parametrize("kind", ["gpipe", "1f1b", "zb-h1"])
@steady
@given(p=STAGES, m=MICROBATCHES)
def test_micro_batches_go_forward_and_backward_in_order(kind: str, p: int, m: int) -> None:
    for actions in by_name(kind, p, m):
        order = computes(actions)
        assert [a for a in order if isinstance(a, Forward)] == [Forward(i) for i in range(m)]
        assert [a for a in order if isinstance(a, Backward)] == [Backward(i) for i in range(m)]
        weights = [Weight(i) for i in range(m)] if kind == "zb-h1" else []
        assert [a for a in order if isinstance(a, Weight)] == weights


@steady
@given(p=STAGES, m=MICROBATCHES)
def test_gpipe_holds_every_micro_batch(p: int, m: int) -> None:
    assert [peak_live(actions) for actions in gpipe(p, m)] == [m] * p


@steady
@given(p=STAGES, m=MICROBATCHES)
def test_1f1b_holds_no_more_micro_batches_than_stages_follow(p: int, m: int) -> None:
    live = [peak_live(actions) for actions in one_forward_one_backward(p, m)]
    assert live == [min(m, p - s) for s in range(p)]


@steady
@given(interleavings())
def test_interleaved_1f1b_holds_one_more_than_megatrons_warmup(case: tuple[int, ...]) -> None:
    p, m, v, group = case
    live = [peak_live(actions) for actions in interleaved(p, m, v, group=group)]
    assert live == [min(2 * (p - s - 1) + (v - 1) * group + 1, m * v) for s in range(p)]


@steady
@given(p=STAGES, m=MICROBATCHES)
def test_evaluation_holds_nothing(p: int, m: int) -> None:
    assert {peak_live(actions) for actions in forward_only(p, m)} == {0}


@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
@steady
@given(p=STAGES, m=MICROBATCHES, forward=COST, backward=COST)
def test_the_bubble_is_p_minus_1_over_m_plus_p_minus_1(
    kind: str, p: int, m: int, forward: int, backward: int
) -> None:
    timeline = simulate(by_name(kind, p, m), forward=forward, backward=backward)
    assert bubble(timeline) == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)


@steady
@given(interleavings(), COST, COST)
def test_interleaving_divides_the_bubble_by_the_chunks(
    case: tuple[int, ...], forward: int, backward: int
) -> None:
    p, m, v, group = case
    if m < p:
        return
    timeline = simulate(interleaved(p, m, v, group=group), forward=forward, backward=backward)
    assert bubble(timeline) == pytest.approx((p - 1) / (v * m + p - 1), abs=1e-12)


@steady
@given(p=STAGES, m=MICROBATCHES, forward=COST, backward=COST, weight=COST)
def test_zb_h1_leaves_forward_plus_backward_minus_weights_of_the_bubble(
    p: int, m: int, forward: int, backward: int, weight: int
) -> None:
    """Where weights cost no more than either; else it is less than 1F1B's all the same."""
    actual = bubble(simulate(zero_bubble(p, m), forward=forward, backward=backward, weight=weight))
    if m >= p and weight <= min(forward, backward):
        idle = (p - 1) * (forward + backward - weight)
        theory = idle / (m * (forward + backward + weight) + idle)
        assert actual == pytest.approx(theory, abs=1e-12)
    assert actual <= (p - 1) / (m + p - 1) + 1e-12


@steady
@given(p=STAGES, m=MICROBATCHES)
def test_zb_h1_holds_on_every_stage_what_1f1b_holds_on_its_first(p: int, m: int) -> None:
    assert [peak_live(actions) for actions in zero_bubble(p, m)] == [min(m, p)] * p


@pytest.mark.parametrize(("p", "m", "v", "group"), [(2, 4, 2, 2), (4, 8, 3, 4), (3, 10, 2, 5)])
def test_the_interleaved_order_is_megatrons(p: int, m: int, v: int, group: int) -> None:
    from costlab.implementations.megatron import schedules

    table = schedules.get_schedule_table(m, v, group)
    for stage, actions in enumerate(interleaved(p, m, v, group=group)):
        place = SimpleNamespace(size=lambda: p, rank=lambda s=stage: s)
        _, _, warmup, rest = schedules.get_pp_rank_microbatches(
            m,
            v,
            group,
            p2p_communicator=SimpleNamespace(
                pp_group=place, virtual_pipeline_model_parallel_size=v
            ),
        )
        forwards = [Forward(*entry) for entry in table]
        backwards = [Backward(i, v - 1 - c) for i, c in table]
        expected: list[object] = [*forwards[:warmup]]
        for i in range(rest):
            expected += [forwards[warmup + i], backwards[i]]
        assert computes(actions) == expected + backwards[rest:]


@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
def test_the_orders_are_torchs(kind: str) -> None:
    """What torch's loop calls; the order that it prints is one forward off on the last stage."""
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe

    torchs = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[kind]
    for p, m in [(1, 1), (2, 4), (4, 4), (4, 8)]:
        for stage, actions in enumerate(by_name(kind, p, m)):
            run = MagicMock(_n_microbatches=m, _num_stages=p)
            run._check_inputs.return_value = ([()] * m, [{}] * m)
            run._stage.stage_index = stage
            for ops in (
                "get_fwd_recv_ops",
                "get_fwd_send_ops",
                "get_bwd_recv_ops",
                "get_bwd_send_ops",
            ):
                getattr(run._stage, ops).return_value = []
            torchs._step_microbatches(run)
            kinds = {"forward_one_chunk": Forward, "backward_one_chunk": Backward}
            torch_computes = [kinds[n](a[0]) for n, a, _ in run._stage.method_calls if n in kinds]
            assert computes(actions) == torch_computes


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: gpipe(0, 4), "at least 1 stage and 1 micro-batch, found 0 and 4"),
        (lambda: one_forward_one_backward(2, 0), "found 2 and 0"),
        (lambda: interleaved(1, 4, 2),
         "at least 2 stages of at least 2 chunks, found 1 of 2; choose --schedule 1f1b"),
        (lambda: interleaved(4, 10, 2), "choose a group of 5, 6, 10, or micro-batches that 4"),
        (lambda: forward_only(2, 2, 0), "at least 1 chunk, found 0"),
        (lambda: by_name("gpipe", 2, 2, 2),
         "--schedule gpipe has one chunk a stage, found 2; choose --schedule interleaved"),
        (lambda: by_name("zb", 2, 2), "choose gpipe, 1f1b, zb-h1, interleaved, forward-only"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_with_what_can(build: object, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        build()  # type: ignore[operator]


def test_a_message_names_a_schedule_as_it_is_typed() -> None:
    """Whoever reads an error of the kernels or of lab 01 can type what it says."""
    files = [*(ROOT / "tools/shardlab").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]
    raised = [
        " ".join(
            part.value
            for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Raise)
    ]
    named = [text for text in raised if re.search(r"1f1b", text, re.IGNORECASE)]
    assert len(named) >= 4
    assert not [text for text in named if re.search(r"(?<!--schedule )1f1b", text, re.IGNORECASE)]


def test_a_schedule_is_drawn_from_its_own_list() -> None:
    timeline = simulate(one_forward_one_backward(2, 3), backward=2)
    assert draw_text(timeline) == (
        "stage 0  F0 F1 ·  ·  B0--- F2 B1--- ·  B2---\nstage 1  ·  F0 B0--- F1 B1--- F2 B2--- ·  ·"
    )
    with pytest.raises(ScheduleError, match="costs that are whole numbers"):
        draw_text(simulate(one_forward_one_backward(2, 3), forward=0.5))


@pytest.mark.parametrize(
    "page", ["04-pipelines-and-the-grid.md", "04-pipelines-and-the-grid.es.md"]
)
def test_the_theory_page_shows_zb_h1_as_it_is_drawn(page: str) -> None:
    shown = (ROOT / "docs" / "theory" / page).read_text("utf-8")
    assert draw_text(simulate(one_forward_one_backward(4, 6), backward=2)) in shown
    assert draw_text(simulate(zero_bubble(4, 6))) in shown
    assert bubble(simulate(zero_bubble(4, 6))) == pytest.approx(1 / 7)


def test_the_command_draws_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedule", "1f1b", "--stages", "4", "--microbatches", "8"]) == 0
    out = capsys.readouterr().out
    assert "stage 3  ·  ·  ·  F0 B0 F1 B1 F2 B2" in out
    assert "bubble 27.3% of the time" in out
    assert "by stage: 4 3 2 1" in out
    assert main(["--schedule", "interleaved", "--microbatches", "6"]) == 2
    assert "choose a group of 6" in capsys.readouterr().err


def test_mermaid_gets_a_section_a_stage_and_times_that_it_reads_alike_at_both_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--stages", "2", "--microbatches", "1", "--format", "mermaid"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gantt" and "  dateFormat x" in lines
    assert lines[-3:] == ["  section stage 1", "  F0 : 1000, 2000", "  B0 : active, 2000, 3000"]
    halves = draw_mermaid(simulate(one_forward_one_backward(2, 1), forward=0.5), "halves")
    assert halves.endswith("F0 : 500, 1000\n  B0 : active, 1000, 2000")


def test_an_exchange_is_named_by_its_messages() -> None:
    exchange = Exchange((Send(Forward(0)),), (Receive(Backward(1, 1)),))
    assert name(exchange) == "[SF0 RB1b]"


def test_on_a_cpu_receives_are_started_before_their_turn() -> None:
    actions = [part for m in range(5) for part in (Receive(Forward(m)), Forward(m))]
    axis = MagicMock(rank=1, size=2)
    axis.start_exchange.side_effect = lambda sends, receives, **_: [Pending(x) for x, _ in receives]
    neighbours = Neighbours(axis, actions, 1, (((2,), torch.float32),), torch.device("cpu"))
    for number in range(2):
        neighbours.start([Receive(Forward(number))])
    counts = [len(call.args[1]) for call in axis.start_exchange.call_args_list]
    assert counts == [1 + RECEIVES, 1]
