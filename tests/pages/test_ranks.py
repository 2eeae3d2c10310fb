"""A function runs on ranks that talk to each other, and the rank that fails is named."""

import pytest
import torch

from pages.blocks import PageError
from pages.ranks import run_on_ranks
from shardlab.comm import World


def add_ranks(world: World, start: int) -> float:
    return float(world.whole.all_reduce(torch.tensor([float(start + world.rank)])))


def raise_on_one(world: World) -> None:
    if world.rank == 1:
        raise ValueError("no such layer")
    world.whole.all_reduce(torch.ones(1))


def test_ranks_talk_to_each_other_and_answer_in_their_order() -> None:
    assert run_on_ranks(2, add_ranks, 5) == [11.0, 11.0]


def test_the_rank_that_raises_is_named_and_nobody_waits_for_it() -> None:
    with pytest.raises(PageError, match=r"rank 1 .*: no such layer"):
        run_on_ranks(2, raise_on_one)
