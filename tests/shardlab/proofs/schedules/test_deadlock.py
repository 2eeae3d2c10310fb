"""The abstract machine: it ends for every schedule of ours, and stops where a real one would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlab.pipeline.action import (
    Backward,
    Exchange,
    Forward,
    Receive,
    Schedule,
    ScheduleError,
    Send,
    Weight,
    parts,
)
from shardlab.pipeline.schedule import (
    by_name,
    forward_only,
    interleaved,
    one_forward_one_backward,
    with_exchanges,
)
from shardlab.proofs.schedules.deadlock import DeadlockError, Sends, check, deadlock
from tests.shardlab.pipeline.test_schedule import interleavings
from tests.shardlab.properties import steady

MACHINES: list[Sends] = ["rendezvous", "buffered"]


def unfused(schedule: Schedule) -> Schedule:
    """The same actions with every exchange taken apart: sends first, one after the other."""
    return [[part for action in actions for part in parts(action)] for actions in schedule]


@pytest.mark.parametrize("sends", MACHINES)
@pytest.mark.parametrize("kind", ["gpipe", "1f1b", "zb-h1", "forward-only"])
@steady
@given(p=st.integers(1, 6), m=st.integers(1, 12))
def test_every_schedule_is_whole_and_ends(kind: str, sends: Sends, p: int, m: int) -> None:
    check(by_name(kind, p, m), sends=sends)


@pytest.mark.parametrize("sends", MACHINES)
@steady
@given(case=interleavings())
def test_every_interleaving_is_whole_and_ends(sends: Sends, case: tuple[int, ...]) -> None:
    p, m, v, group = case
    check(interleaved(p, m, v, group=group), sends=sends)
    check(forward_only(p, m, v), sends=sends)


@steady
@given(p=st.integers(2, 6), more=st.integers(1, 8))
def test_1f1b_without_fused_exchanges_deadlocks_where_sends_block(p: int, more: int) -> None:
    schedule = unfused(one_forward_one_backward(p, p + more))
    assert not deadlock(schedule, sends="buffered")
    assert deadlock(schedule)


def test_a_deadlock_names_who_waits_on_whom_for_what() -> None:
    with pytest.raises(DeadlockError) as caught:
        check(unfused(one_forward_one_backward(2, 3)))
    assert "stage 0 waits at action 7 with SF2 (to stage 1)" in str(caught.value)
    assert "stage 1 waits at action 7 with SB1 (to stage 0)" in str(caught.value)


def test_a_receive_before_its_cause_deadlocks_on_both_machines() -> None:
    bad: Schedule = [
        [Forward(0), Receive(Backward(0)), Send(Forward(0)), Backward(0)],
        [Receive(Forward(0)), Forward(0), Backward(0), Send(Backward(0))],
    ]
    for sends in MACHINES:
        assert {wait.stage for wait in deadlock(bad, sends=sends)} == {0, 1}


def test_one_exchange_may_hold_what_crosses() -> None:
    good: Schedule = [
        [Forward(0), Exchange((Send(Forward(0)),), (Receive(Backward(0)),)), Backward(0)],
        [Receive(Forward(0)), Forward(0), Backward(0), Send(Backward(0))],
    ]
    check(good, sends="buffered")
    # Blocking, the exchange would hold back what the other stage needs first: it does not, its
    # parts are started together.
    check(good)


def test_computes_that_wait_for_each_other_are_found_without_any_message() -> None:
    with pytest.raises(ScheduleError, match=r"stage 0 waits before B0; stage 1 waits before F1"):
        with_exchanges(
            [
                [Forward(0), Backward(0), Forward(1), Backward(1)],
                [Forward(1), Backward(1), Forward(0), Backward(0)],
            ]
        )


PASS: Schedule = [
    [Forward(0), Send(Forward(0)), Receive(Backward(0)), Backward(0)],
    [Receive(Forward(0)), Forward(0), Backward(0), Send(Backward(0))],
]


def edited(stage: int, position: int, *new: object) -> Schedule:
    schedule = [list(actions) for actions in PASS]
    schedule[stage][position : position + 1] = list(new)  # type: ignore[arg-type]
    return schedule


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (edited(0, 0), "stage 0, action 0, SF0: F0 must come before SF0"),
        (edited(1, 0), "stage 1, action 0, F0: RF0 must come before F0"),
        (edited(0, 2), "stage 0, action 2, B0: RB0 must come before B0"),
        (edited(1, 2), "stage 1, action 2, SB0: B0 must come before SB0"),
        (edited(0, 3), "stage 0 never runs B0"),
        (edited(0, 3, Backward(0), Weight(0)), "stage 1 never runs W0"),
        (edited(0, 3, Weight(0), Backward(0)), "stage 0, action 3, W0: B0 must come before W0"),
        (edited(0, 0, Forward(0), Forward(0)), "stage 0, action 1, F0: F0 was done before"),
        (edited(0, 3, Backward(0), Send(Backward(0))), "SB0 has no other stage at its other end"),
        (edited(1, 3), "deadlock where sends are rendezvous"),
        (edited(0, 0, Forward(0), Forward(0, 1)), "RF0b must come before F0b"),
    ],
)
def test_a_schedule_with_a_hole_is_refused_by_name(schedule: Schedule, words: str) -> None:
    check(PASS)
    with pytest.raises(ScheduleError) as caught:
        check(schedule)
    assert words in str(caught.value)


def test_a_message_that_nobody_receives_is_refused() -> None:
    extra: Schedule = [[Forward(0), Send(Forward(0))], [Receive(Forward(0)), Forward(0)]]
    check(extra)
    with pytest.raises(ScheduleError, match="stage 0 sends SF0, stage 1 never receives it"):
        deadlock([extra[0], []], sends="buffered")


def test_receives_must_come_in_the_order_of_the_sends() -> None:
    """Two messages of one shape would be taken for one another, and nothing would say so."""
    swapped: Schedule = [
        [Forward(0), Forward(1), Send(Forward(0)), Send(Forward(1))],
        [Receive(Forward(1)), Receive(Forward(0)), Forward(0), Forward(1)],
    ]
    with pytest.raises(ScheduleError, match="stage 1 expects RF1 from stage 0, which sends SF0"):
        deadlock(swapped)


def test_megatrons_fixed_order_of_four_would_swap_tensors_on_two_stages() -> None:
    """Interleaved on two stages both neighbours are one: hence pp > 2 or overlap in Megatron.

    Its batch sends to the stage before, receives from it, sends to the next, receives from it.
    """
    backward_first = Exchange((Send(Backward(0, 1)), Send(Forward(1))), ())
    forward_first = Exchange((), (Receive(Forward(1)), Receive(Backward(0))))
    with pytest.raises(ScheduleError, match="stage 1 expects RF1 from stage 0, which sends SB0b"):
        deadlock([[backward_first], [forward_first]])
