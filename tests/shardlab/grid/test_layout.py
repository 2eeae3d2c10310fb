"""The enumeration of ranks against Megatron's own, and the rules about what divides what.

Nothing here starts a process. Which rank stands where depends on the sizes in the order of their
digits alone, so all sizes are tried under one order and all orders under a few sizes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.testing._internal.distributed.fake_pg import FakeStore

from costlab.implementations.megatron import parallel_state
from shardlab.grid import rules
from shardlab.grid.layout import NAMES, Layout

RankGenerator = parallel_state.RankGenerator

TOKENS = ("tp", "cp", "ep", "dp", "pp")
ORDERS = ["-".join(order) for order in itertools.permutations(TOKENS)]
DENSE = ("tp", "cp", "dp", "pp")
EXPERT = ("tp", "ep", "dp", "pp")


def combinations(tokens: tuple[str, ...]) -> list[str]:
    return [
        "-".join(chosen)
        for count in range(1, len(tokens) + 1)
        for chosen in itertools.combinations(tokens, count)
    ]


def factorisations(ranks: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (ranks,)
        return
    for size in rules.divisors(ranks):
        for rest in factorisations(ranks // size, parts - 1):
            yield (size, *rest)


def shardlab_layout(sizes: dict[str, int], order: str) -> Layout:
    return Layout(order=order, **{NAMES[token]: size for token, size in sizes.items()})


def megatron_layout(sizes: dict[str, int], order: str) -> RankGenerator:
    return RankGenerator(**(dict.fromkeys(TOKENS, 1) | sizes), order=order)


def assert_equal(sizes: dict[str, int], order: str, tokens: list[str]) -> None:
    layout, real = shardlab_layout(sizes, order), megatron_layout(sizes, order)
    assert layout.order == real.order
    assert layout.world_size == real.world_size
    for token in tokens:
        assert layout.groups(token) == real.get_ranks(token), (sizes, order, token)


# Of an expert's axes, the groups that Megatron makes.
WANTED = {DENSE: combinations(DENSE), EXPERT: ["tp", "ep", "dp", "pp", "tp-ep", "tp-ep-pp"]}


@pytest.mark.parametrize("ranks", [24, pytest.param(64, marks=pytest.mark.ci)])
@pytest.mark.parametrize("axes", [DENSE, EXPERT], ids=["dense", "expert"])
def test_every_factorisation_is_enumerated_as_megatron_does(
    axes: tuple[str, ...], ranks: int
) -> None:
    for count in range(1, ranks + 1):
        for sizes in factorisations(count, len(axes)):
            assert_equal(dict(zip(axes, sizes, strict=True)), "tp-cp-ep-dp-pp", WANTED[axes])


@pytest.mark.parametrize("axes", [DENSE, EXPERT], ids=["dense", "expert"])
def test_every_order_is_enumerated_as_megatron_does_for_every_combination_of_axes(
    axes: tuple[str, ...],
) -> None:
    tokens = combinations(TOKENS)
    for order in ORDERS:
        assert_equal(dict(zip(axes, (2, 3, 1, 4), strict=True)), order, tokens)


def test_an_axis_of_one_rank_may_be_left_out_of_the_order() -> None:
    for count in range(1, 5):
        for order in itertools.permutations(TOKENS, count):
            sizes = dict(zip(order, (2, 3, 1, 2), strict=False))
            if sizes.get("cp", 1) > 1 and sizes.get("ep", 1) > 1:
                continue
            assert_equal(sizes, "-".join(order), combinations(TOKENS))
    assert_equal({"tp": 2, "dp": 3}, "DP-TP", ["tp", "dp", "tp-dp", "dp-tp"])


@given(st.permutations(TOKENS), st.lists(st.integers(1, 5), min_size=4, max_size=4), st.data())
def test_a_rank_is_in_its_group_and_its_coordinates_lead_back_to_it(
    order: list[str], sizes: list[int], data: st.DataObject
) -> None:
    layout = shardlab_layout(dict(zip(DENSE, sizes, strict=True)), "-".join(order))
    rank = data.draw(st.integers(0, layout.world_size - 1))
    tokens = data.draw(st.sampled_from(combinations(TOKENS)))
    group = layout.group_of(rank, tokens)
    assert rank in group
    assert group in layout.groups(tokens)
    place = layout.coordinates(rank)
    for member in group:
        coordinates = layout.coordinates(member)
        assert all(
            coordinates[n] == place[n] for t, n in NAMES.items() if t not in tokens.split("-")
        )
    strides, stride = {}, 1
    for token in layout.order.split("-"):
        strides[NAMES[token]] = stride
        stride *= getattr(layout, NAMES[token])
    assert sum(place[name] * strides[name] for name in place) == rank


REFUSED = [
    ({"ep": 2, "cp": 2}, "tp-cp-ep-dp-pp"),
    ({"tp": 2, "dp": 2}, "tp-pp"),
    ({"cp": 2}, "tp-dp-pp"),
    ({"ep": 2}, "tp-dp-pp"),
    ({}, "tp-xp"),
    ({}, ""),
    ({"tp": 2}, "tp_dp"),
    ({"tp": 2, "dp": 2}, "tpdp"),
    ({"tp": 2}, "tp-"),
]


@pytest.mark.parametrize(("sizes", "order"), REFUSED)
def test_what_megatron_refuses_is_refused(sizes: dict[str, int], order: str) -> None:
    with pytest.raises((AssertionError, RuntimeError, KeyError)):
        megatron_layout(sizes, order)
    with pytest.raises(ValueError, match=r"order|context"):
        shardlab_layout(sizes, order)


@pytest.mark.parametrize("tokens", ["xp", "", "tp-", "tp dp", "TP"])
def test_an_unknown_axis_is_refused_as_megatron_does(tokens: str) -> None:
    with pytest.raises(ValueError, match="not in list"):
        megatron_layout({"tp": 2}, "tp-dp").get_ranks(tokens)
    for ask in (Layout(tensor=2).groups, lambda t: Layout(tensor=2).group_of(0, t)):
        with pytest.raises(ValueError, match="choose from tp, pp, dp, ep, cp"):
            ask(tokens)


def test_refusals_say_what_was_found_and_what_to_do() -> None:
    for call, words in [
        (lambda: Layout(order="tp-dp-xp"), "order 'tp-dp-xp' has 'xp'; choose from tp, pp, dp, ep"),
        (lambda: Layout(order="tp-tp"), "has 'tp' twice; name each axis once"),
        (lambda: Layout(data=3, order="tp-pp"), "the data axis has 3 ranks; add 'dp'"),
        (lambda: Layout(tensor=0), "tensor axis of size 0; choose a whole number from 1"),
        (lambda: Layout(context=2, expert=2), "a layout of their own with context = 1"),
        (lambda: Layout(tensor=2).coordinates(2), "rank 2 is not one of the 2 ranks"),
        (lambda: Layout(tensor=2).group_of(-1, "tp"), "rank -1 is not one of the 2 ranks"),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            call()


# ------------------------------------------------------------------ the whole of Megatron's grid

# tensor, context, expert, pipeline, order: on 16 ranks
GRIDS = [
    (2, 1, 1, 2, "tp-cp-ep-dp-pp"),
    (2, 2, 1, 2, "tp-cp-ep-dp-pp"),
    (2, 1, 2, 2, "tp-cp-ep-dp-pp"),
    (2, 2, 4, 2, "tp-cp-ep-dp-pp"),
    (1, 4, 2, 2, "tp-ep-cp-dp-pp"),
    (2, 1, 1, 4, "tp-pp-dp"),
    (2, 2, 2, 2, "tp-cp-ep-pp-dp"),
    (2, 1, 2, 2, "tp-ep-pp-dp"),
    (2, 1, 2, 2, "tp-dp-pp-ep"),
    (2, 1, 2, 2, "tp-pp-dp-ep"),
    (4, 1, 3, 1, "tp-cp-ep-dp-pp"),
    (3, 1, 1, 2, "tp-cp-ep-dp-pp"),
]


@pytest.mark.parametrize(("tensor", "context", "expert", "pipeline", "order"), GRIDS)
@pytest.mark.parametrize("rank", [0, 6, 15])
def test_a_rank_has_the_groups_that_megatron_gives_it_for_dense_layers_and_experts(
    rank: int, tensor: int, context: int, expert: int, pipeline: int, order: str
) -> None:
    dist.init_process_group("fake", rank=rank, world_size=16, store=FakeStore())
    try:
        real = None
        try:
            parallel_state.initialize_model_parallel(
                tensor,
                pipeline,
                context_parallel_size=context,
                expert_model_parallel_size=expert,
                order=order,
                create_gloo_process_groups=False,
            )
            real = parallel_state
        except (AssertionError, RuntimeError):
            with pytest.raises(ValueError, match=r"choose|put 'pp' last"):
                both(tensor, context, expert, pipeline, order)
            return
        dense, experts = both(tensor, context, expert, pipeline, order)
        for layout, tokens, group in [
            (dense, "tp", real.get_tensor_model_parallel_group()),
            (dense, "pp", real.get_pipeline_model_parallel_group()),
            (dense, "cp", real.get_context_parallel_group()),
            (dense, "dp", real.get_data_parallel_group()),
            (dense, "dp-cp", real.get_data_parallel_group(with_context_parallel=True)),
            (dense, "tp-pp", real.get_model_parallel_group()),
            (experts, "ep", real.get_expert_model_parallel_group()),
            (experts, "dp-cp", real.get_expert_data_parallel_group()),
        ]:
            assert layout.group_of(rank, tokens) == dist.get_process_group_ranks(group), tokens
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def both(
    tensor: int, context: int, expert: int, pipeline: int, order: str
) -> tuple[Layout, Layout]:
    data = rules.check_world(16, tensor=tensor, context=context, pipeline=pipeline)
    dense = Layout(tensor, context, 1, data, pipeline, order)
    return dense, dense.for_experts(expert)


# ------------------------------------------------------------------ what divides what


def test_the_errors_about_a_model_name_the_axis_and_the_sizes_that_would_do() -> None:
    model = {"hidden": 32, "heads": 8, "kv_heads": 4, "ffn": 96, "vocab": 100}
    cases = [
        (lambda: rules.check_tensor(3, hidden=32, heads=8),
         "tensor axis of size 3 does not divide 8 heads; choose 1, 2, 4 or 8"),
        (lambda: rules.check_tensor(8, **model),
         "tensor axis of size 8 does not divide 4 key-value groups; choose 1, 2 or 4"),
        (lambda: rules.check_tensor(2, hidden=32, heads=8, kv_heads=3),
         "8 heads do not form 3 equal key-value groups; choose 1, 2, 4 or 8"),
        (lambda: rules.check_tensor(2, hidden=30, heads=8),
         "hidden size 30 is not a multiple of 8 heads; choose 24 or 32"),
        (lambda: rules.check_tensor(4, hidden=32, heads=8, ffn=6),
         "tensor axis of size 4 does not divide 6 ffn columns; choose 1, 2, 3 or 6"),
        (lambda: rules.check_tensor(4, hidden=32, heads=8, vocab=10),
         "does not divide 10 words of vocabulary; choose 1, 2, 5 or 10"),
        (lambda: rules.check_tensor(2, hidden=32, heads=8, sequence=7),
         "does not divide 7 tokens of a sequence (sequence parallelism); choose 1 or 7"),
        (lambda: rules.check_pipeline(3, layers=4),
         "pipeline axis of size 3 does not divide 4 layers; choose 1, 2 or 4"),
        (lambda: rules.check_pipeline(2, layers=8, chunks=3),
         "3 chunks do not divide the 4 layers of a stage; choose 1, 2 or 4"),
        (lambda: rules.check_pipeline(1, layers=8, chunks=2), "choose chunks = 1, or 2 stages"),
        (lambda: rules.check_world(8, tensor=3, pipeline=1),
         "tensor 3 · pipeline 1 = 3 ranks do not divide a world of 8; start a multiple of 3"),
        (
            lambda: rules.check_world(8, tensor=2, pipeline=2, data=4),
            "tensor 2 · pipeline 2 · data 4 = 16 ranks, but the world has 8; start 16 processes, "
            "or choose data = 2",
        ),
    ]  # fmt: skip
    for call, words in cases:
        with pytest.raises(ValueError, match=re.escape(words)):
            call()


@given(st.integers(1, 500), st.integers(1, 9))
def test_a_padded_vocabulary_is_the_next_one_that_every_rank_gets_an_equal_piece_of(
    vocab: int, tensor: int
) -> None:
    padded = rules.padded_vocabulary(vocab, tensor)
    assert padded % tensor == 0
    assert vocab <= padded < vocab + tensor
