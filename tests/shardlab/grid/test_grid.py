"""The grid on a world: real groups, and the same ones handed to DTensor and FSDP2.

Which rank stands where is tested without processes, in test_layout.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from pages.ranks import alone
from shardlab.comm import World
from shardlab.grid.grid import Grid
from shardlab.grid.layout import Layout
from shardlab.proofs.ledger import Ledger
from tests.shardlab.pool import on_ranks

ORDERS = ["tp-cp-ep-dp-pp", "tp-pp-dp", "dp-tp-pp", "pp-dp-tp-cp-ep", "cp-tp-dp-pp-ep"]


def axes(world: World, sizes: dict[str, int], order: str) -> dict[str, tuple[int, list[int]]]:
    """Each axis' place of this rank, and the ranks that a real all-gather over it finds there."""
    grid = Grid(world=world, order=order, **sizes)
    members = {}
    for axis in (grid.tensor, grid.data, grid.pipeline, grid.axis("data", "tensor")):
        rank = torch.tensor([world.rank], device=world.device)
        members[axis.name] = (axis.rank, axis.all_gather(rank).tolist())
        assert list(axis.ranks) == members[axis.name][1]
    return members


@pytest.mark.parametrize("order", ORDERS)
def test_each_axis_reaches_the_ranks_that_the_layout_says(pool, order: str) -> None:
    sizes = {"tensor": 2, "pipeline": 2}
    layout = Layout(**sizes, data=2, order=order)
    for rank, members in enumerate(pool(8).run(axes, sizes, order)):
        for name, (place, ranks) in members.items():
            tokens = "dp-tp" if name == "data-tensor" else name[0] + "p"
            assert ranks == layout.group_of(rank, tokens)
            if name in layout.coordinates(rank):
                assert place == layout.coordinates(rank)[name]


def embedding(world: World) -> tuple[list[int] | None, list[int] | None, bool]:
    four = Grid(world=world, pipeline=4).embedding
    single_stage = Grid(world=world, tensor=4).embedding
    two = Grid(world=world, pipeline=2)
    assert two.embedding is not None
    return (
        None if four is None else list(four.ranks),
        None if single_stage is None else list(single_stage.ranks),
        two.embedding.ranks == two.pipeline.ranks,
    )


def test_the_embedding_axis_joins_the_first_and_the_last_stage(pool) -> None:
    results = pool(4).run(embedding)
    assert [four for four, _, _ in results] == [[0, 3], None, None, [0, 3]]
    assert [single_stage for _, single_stage, _ in results] == [[0], [1], [2], [3]]
    assert all(same for _, _, same in results)


def expert_axes(world: World, sizes: dict[str, int]) -> dict[str, tuple[str, list[int]]]:
    grid = Grid(world=world, **sizes)  # type: ignore[arg-type]
    rank = torch.tensor([world.rank], device=world.device)
    axes = {
        "ep": grid.expert,
        "tp": grid.expert_tensor,
        "dp": grid.expert_data,
        "tp-ep": grid.axis("expert_tensor", "expert"),
        "tp-ep-pp": grid.axis("expert_tensor", "expert", "pipeline"),
    }
    return {token: (axis.name, axis.all_gather(rank).tolist()) for token, axis in axes.items()}


@pytest.mark.ci
@pytest.mark.parametrize(
    "sizes",
    [
        {"tensor": 2, "expert": 2, "expert_tensor": 1, "pipeline": 2},  # folded: 2 data ranks
        {"expert": 4, "pipeline": 2},
        {"expert": 2, "expert_tensor": 2},
        {"tensor": 2, "expert_tensor": 1, "pipeline": 2},  # every rank holds all experts
        {"tensor": 2, "expert_tensor": 1, "expert": 8},
    ],
)
def test_the_experts_axes_reach_the_ranks_that_their_own_layout_says(
    pool, sizes: dict[str, int]
) -> None:
    """Expert groups stand apart from the dense ones: folding."""
    pipeline, tensor = sizes.get("pipeline", 1), sizes.get("tensor", 1)
    ranks = sizes.get("expert", 1) * sizes.get("expert_tensor", tensor)
    layout = Layout(
        tensor=sizes.get("expert_tensor", tensor), expert=sizes.get("expert", 1),
        data=8 // pipeline // ranks, pipeline=pipeline,
    )  # fmt: skip
    for rank, members in enumerate(pool(8).run(expert_axes, sizes)):
        assert {t: g for t, (_, g) in members.items()} == {
            tokens: layout.group_of(rank, tokens) for tokens in members
        }
        assert [name for name, _ in members.values()][-1] == "expert_tensor-expert-pipeline"


@on_ranks(4)
def test_two_grids_live_side_by_side_in_one_process(world: World) -> None:
    tensor_first = Grid(world=world, tensor=2)
    data_first = Grid(world=world, tensor=2, order="dp-tp")
    x = torch.ones(1, device=world.device) * world.rank
    assert tensor_first.tensor.all_reduce(x).item() == [1, 1, 5, 5][world.rank]
    assert data_first.tensor.all_reduce(x).item() == [2, 4, 2, 4][world.rank]


# ------------------------------------------------------------------ the same layout for PyTorch


def mesh(world: World, order: str) -> tuple[str, ...]:
    grid = Grid(world=world, tensor=2, pipeline=2, order=order)
    mesh = grid.device_mesh()
    for name in ("tensor", "context", "data", "pipeline"):
        axis = getattr(grid, name)
        assert dist.get_process_group_ranks(mesh.get_group(name)) == list(axis.ranks)
        assert mesh.get_local_rank(name) == axis.rank
        assert mesh.size(mesh.mesh_dim_names.index(name)) == axis.size
    # A DTensor cut by the mesh is cut as our axes cut it, and its collectives run in our groups.
    whole = torch.arange(16.0, device=world.device).view(8, 2)
    cut = distribute_tensor(whole, mesh["tensor"], [Shard(0)])
    assert isinstance(cut, DTensor)
    assert torch.equal(cut.to_local(), whole.chunk(2)[grid.tensor.rank])
    with Ledger() as ledger:
        assert torch.equal(cut.full_tensor(), whole)
    assert [entry.ranks for entry in ledger.entries] == [grid.tensor.ranks]
    # So is a model that FSDP2 shards over the data axis.
    torch.manual_seed(0)
    model = nn.Linear(4, 2, bias=False, device=world.device)
    weight = model.weight.detach().clone()
    fully_shard(model, mesh=mesh["data"])
    assert torch.equal(model.weight.to_local(), weight.chunk(2)[grid.data.rank])  # type: ignore[operator]
    with Ledger() as ledger:
        model(whole.view(4, 4)).sum().backward()
    assert {entry.ranks for entry in ledger.entries} == {grid.data.ranks}
    assert torch.equal(model.weight.full_tensor(), weight)  # type: ignore[operator]
    return mesh.mesh_dim_names


@pytest.mark.parametrize("order", ORDERS)
def test_the_device_mesh_has_our_groups_our_names_and_our_places(pool, order: str) -> None:
    for names in pool(8).run(mesh, order):
        if order == "tp-cp-ep-dp-pp":
            assert names == ("pipeline", "data", "context", "tensor")
        if order == "tp-pp-dp":
            assert names[-3:] == ("data", "pipeline", "tensor")


# ------------------------------------------------------------------ refusals, links


@pytest.fixture
def fifth() -> Iterator[World]:
    with alone(5, 8) as world:
        yield world


def test_a_grid_works_on_one_process_under_the_fake_backend(fifth: World) -> None:
    grid = Grid(world=fifth, tensor=2, pipeline=2)
    assert (grid.tensor.ranks, grid.data.ranks, grid.pipeline.ranks) == ((4, 5), (5, 7), (1, 5))
    with Ledger() as ledger:
        grid.tensor.all_reduce(torch.zeros(4))
        grid.pipeline.send(torch.zeros(4), 0)
    assert [(e.op, e.ranks, e.axis) for e in ledger.entries] == [
        ("all_reduce", (4, 5), "tensor"),
        ("send", (5, 1), "pipeline"),
    ]


def test_what_does_not_fit_the_world_is_refused_with_what_would(fifth: World) -> None:
    for sizes, words in [
        ({"tensor": 3}, "ranks do not divide a world of 8; start a multiple of 3 processes"),
        ({"tensor": 2, "data": 2}, "but the world has 8; start 4 processes, or choose data = 4"),
        ({"expert": 3}, "tensor 1 · expert 3 · pipeline 1 = 3 ranks do not divide a world of 8"),
        ({"expert": 16}, "expert 16 · pipeline 1 = 16 ranks do not divide a world of 8"),
        ({"expert": 4, "expert_tensor": 4}, "tensor 4 · expert 4 · pipeline 1 = 16 ranks"),
        ({"expert": 0}, "expert axis of size 0; choose a whole number from 1"),
        ({"context": 3, "tensor": 2}, "tensor 2 · context 3 · pipeline 1 = 6 ranks do not divide"),
        ({"links": {"tensr": "shared-memory"}}, "links has 'tensr', which is no axis; tensor, "),
        ({"links": {"tensor": "carrier-pigeon"}, "tensor": 2}, "carrier-pigeon"),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            Grid(world=fifth, **sizes)  # type: ignore[arg-type]
    for names in (("model",), ("expert", "data"), ("tensor", "expert")):
        with pytest.raises(ValueError, match="choose from tensor, context, data, pipeline, or of"):
            Grid(world=fifth).axis(*names)


def test_a_link_goes_to_the_axis_that_it_names_and_to_no_other(fifth: World) -> None:
    requested = {}

    class RecordingWorld:
        rank, size, device = fifth.rank, fifth.size, fifth.device

        def axis(self, name: str, ranks: list[int], *, link: str | None) -> object:
            requested[name] = link
            return fifth.axis(name, ranks)

    links = {"tensor": "shared-memory", "tensor-data": "shared-memory"}
    grid = Grid(world=RecordingWorld(), tensor=2, links=links)  # type: ignore[arg-type]
    grid.axis("tensor", "data")
    grid.axis("data", "pipeline")
    assert {name for name, link in requested.items() if link} == {"tensor", "tensor-data"}


@on_ranks(4)
def test_a_world_that_was_left_can_be_joined_again_with_the_same_groups(world: World) -> None:
    for _ in range(2):
        again = World(device=world.device)
        pair = Grid(world=again, tensor=2).tensor
        value = torch.ones(1, device=world.device) * world.rank
        assert pair.all_reduce(value).item() == [1, 1, 5, 5][world.rank]
        again.whole.barrier()  # whoever left now would hang up on one who still joins another group
        again.close()
