"""The arithmetic of flat parameters, the table of states and the guard of what is sharded.

No process group here: a mistake in one of these shows in these tests first.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardlab.comm import Axis
from shardlab.fsdp import MixedPrecision, ShardingStrategy
from shardlab.fsdp.flat_parameter import ALIGNMENT, FlatLayout
from shardlab.fsdp.life_cycle import (
    GRADIENTS,
    PARAMETERS,
    GradientState,
    IllegalTransition,
    LifeCycle,
    ParameterState,
)
from shardlab.fsdp.unit import ShardedAttributeError, ShardedParameter

shapes = st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=5)
sizes = st.integers(1, 8)


def layout_of(shapes: list[list[int]], size: int) -> FlatLayout:
    return FlatLayout.of({f"p{i}": shape for i, shape in enumerate(shapes)}, size)


@given(shapes, sizes)
def test_every_element_of_a_parameter_lies_on_exactly_one_rank(
    shapes: list[list[int]], size: int
) -> None:
    layout = layout_of(shapes, size)
    elements = [
        (number, offset + i)
        for rank in range(size)
        for number, start, stop, offset in layout.pieces(rank)
        for i in range(stop - start)
    ]
    every = [(n, i) for n, shape in enumerate(shapes) for i in range(torch.Size(shape).numel())]
    assert sorted(elements) == every


@given(shapes, sizes)
def test_parameters_and_gaps_fill_the_flat_parameter_without_overlap(
    shapes: list[list[int]], size: int
) -> None:
    layout = layout_of(shapes, size)
    cover = [0] * layout.numel
    for at, shape in zip(layout.offsets, layout.shapes, strict=True):
        assert at % ALIGNMENT == 0
        for i in range(at, at + torch.Size(shape).numel()):
            cover[i] += 1
    for start, stop in layout.gaps:
        for i in range(start, stop):
            cover[i] += 1
    assert cover == [1] * layout.numel
    assert layout.numel % size == 0


def test_a_life_follows_the_table_and_refuses_all_else_with_a_reason() -> None:
    for table, states in ((PARAMETERS, ParameterState), (GRADIENTS, GradientState)):
        events = {event for _, event in table}
        for state in states:
            for event in events:
                life = LifeCycle("unit blocks.0", table, state)
                if (state, event) in table:
                    life.move(event)
                    assert life.state is table[state, event]
                else:
                    with pytest.raises(IllegalTransition, match=f"{state.name} and can't {event}"):
                        life.move(event)
                    assert life.state is state


def test_a_double_gather_is_illegal_in_every_state_that_has_begun_one() -> None:
    life = LifeCycle("unit blocks.0", PARAMETERS, ParameterState.SHARDED)
    life.move("gather")
    with pytest.raises(IllegalTransition, match="in flight already; wait for that one"):
        life.move("gather")
    life.move("arrive")
    with pytest.raises(IllegalTransition, match="holds its full parameters already"):
        life.move("gather")


def test_the_tables_in_the_docstring_are_the_tables() -> None:
    from shardlab.fsdp import life_cycle

    rows = [line.split() for line in (life_cycle.__doc__ or "").splitlines()]
    written = {(r[0], r[1], r[2]) for r in rows if len(r) > 3 and r[0].isupper() and r[2].isupper()}
    transitions = {
        (state.name, event, after.name)
        for table in (PARAMETERS, GRADIENTS)
        for (state, event), after in table.items()
    }
    assert written == transitions


def test_a_sharded_parameter_says_so_in_every_call_that_uses_it() -> None:
    stand_in = ShardedParameter("blocks.0.up.weight", (3, 4))
    x = torch.zeros(2, 4)
    uses = [
        lambda: torch.nn.functional.linear(x, stand_in),  # type: ignore[arg-type]
        lambda: x @ stand_in,
        lambda: torch.nn.functional.layer_norm(x, (4,), stand_in),  # type: ignore[arg-type]
        lambda: torch.nn.functional.embedding(torch.zeros(1, dtype=torch.long), stand_in),  # type: ignore[arg-type]
        lambda: torch.stack([x, stand_in]),  # type: ignore[list-item]
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=r"blocks\.0\.up\.weight is sharded"):
            use()
    with pytest.raises(ShardedAttributeError, match=r"its \.grad was asked for"):
        stand_in.grad  # noqa: B018
    assert repr(stand_in) == "<blocks.0.up.weight (3, 4), sharded>"


def test_a_strategy_wants_the_axes_that_it_has_a_use_for() -> None:
    data, hosts = Axis.alone("data"), Axis.alone("hosts")
    with pytest.raises(ValueError, match="HYBRID_SHARD shards along one axis"):
        ShardingStrategy.HYBRID_SHARD.axes(data, None)
    with pytest.raises(ValueError, match="FULL_SHARD has one axis"):
        ShardingStrategy.FULL_SHARD.axes(data, hosts)
    assert ShardingStrategy.NO_SHARD.axes(data, None)[1] is data
    assert ShardingStrategy.HYBRID_SHARD.axes(data, hosts) == (data, hosts)


def test_mixed_precision_casts_floating_inputs_wherever_they_are() -> None:
    precision = MixedPrecision(torch.bfloat16)
    x, tokens = torch.zeros(2), torch.zeros(2, dtype=torch.long)
    out = precision.cast({"a": [x, (tokens, 3)], "b": x})
    assert out["a"][0].dtype == out["b"].dtype == torch.bfloat16
    assert out["a"][1][0] is tokens
