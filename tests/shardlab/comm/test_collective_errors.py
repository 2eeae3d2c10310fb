"""If one rank raises inside `raise_on_all_ranks`, every rank raises the same error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from shardlab.comm import Axis, CollectiveError, World
from shardlab.comm.collective_errors import MESSAGE_BYTES, raise_on_all_ranks


class OddError(RuntimeError):
    pass


RAISED = [
    OddError("why"), ValueError("why"), OSError("why"), MemoryError(),
    ValueError("ñ" * MESSAGE_BYTES), RuntimeError("why"), KeyError("why"), AttributeError("why"),
    TypeError("why"),
]  # fmt: skip


def outcomes(world: World, failing: tuple[int, ...]) -> Iterator[str]:
    for number, error in enumerate(RAISED):
        try:
            with raise_on_all_ranks(world.whole, world.device, f"do {number}", OddError):
                if world.rank in failing:
                    raise error
        except OddError as raised:
            yield str(raised)
            assert raised.__cause__ is (error if world.rank in failing else None)
        else:
            yield "went on"


def list_outcomes(world: World, failing: tuple[int, ...]) -> list[str]:
    return [*outcomes(world, failing)]


@pytest.mark.parametrize(("failing", "who"), [((1,), "rank 1"), ((0, 1), "rank 0, 1")])
def test_every_rank_raises_the_same_error(pool: Any, failing: tuple[int, ...], who: str) -> None:
    first, second = pool(2).run(list_outcomes, failing)
    assert first == second
    words = ["why", "why", "why", "MemoryError", "ñ" * (MESSAGE_BYTES // 2)]
    words += ["RuntimeError: why", "KeyError: 'why'", "AttributeError: why", "TypeError: why"]
    assert first == [f"{who} could not do {n}: {word}" for n, word in enumerate(words)]


def test_ranks_that_do_not_fail_go_on(pool: Any) -> None:
    assert pool(2).run(list_outcomes, ()) == [["went on"] * len(RAISED)] * 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, CollectiveError])
def test_an_end_and_a_lost_rank_pass_at_once(error: type[BaseException]) -> None:
    alone = raise_on_all_ranks(Axis.alone(), torch.device("cpu"), "do it", OddError)
    with pytest.raises(error), alone:
        raise error
