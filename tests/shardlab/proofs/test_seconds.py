"""The model of latency and bandwidth gives the numbers that theory 1 works out by hand."""

from __future__ import annotations

import pytest

from shardlab.proofs.collective import Call
from shardlab.proofs.formulas.seconds import STEPS, seconds, steps

INSIDE_A_HOST = {"base": 6.6e-6, "hop": 0.6e-6, "bandwidth": 87.7 * 2**30}


def test_the_tutors_all_reduce_takes_what_theory_1_says() -> None:
    assert seconds(Call("all_reduce", 262_144, 2), **INSIDE_A_HOST) == pytest.approx(10.6e-6, 5e-3)


def test_latency_and_bytes_are_equal_at_theory_1s_717_kib() -> None:
    whole = seconds(Call("all_reduce", 717 << 10, 2), **INSIDE_A_HOST)
    assert whole == pytest.approx(2 * 7.8e-6, 1e-3)


def test_a_ring_of_eight_without_bytes_takes_15_us_and_of_512_its_1022_steps() -> None:
    assert seconds(Call("all_reduce", 0, 8), **INSIDE_A_HOST) == pytest.approx(15.0e-6)
    assert steps("all_reduce", 512) == 1022


def test_a_collective_split_in_two_has_the_same_steps_and_bytes() -> None:
    for n in (2, 8, 64):
        whole, parts = Call("all_reduce", 1 << 20, n), ("reduce_scatter", "all_gather")
        assert steps(whole.op, n) == sum(steps(part, n) for part in parts)
        assert whole.wire == sum(Call(part, 1 << 20, n).wire for part in parts)


def test_one_rank_waits_for_nobody() -> None:
    assert [steps(op, 1) for op in STEPS] == [0] * len(STEPS)
    assert steps("send", 2) == 1
