"""Worlds and axes: what each collective returns, what it leaves alone, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from shardlab.comm import Axis, CollectiveError, World
from shardlab.links.fast_gloo import COPIED_BYTES
from shardlab.proofs.ledger import Ledger
from tests.shardlab.pool import on_ranks

LINKS = ["torch", "fast-gloo", "shared-memory", "staged"]
PLAIN = ("torch", "fast-gloo", "staged")  # whose all-reduce is gloo's own
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int8, torch.uint8,
]  # fmt: skip
LARGE = COPIED_BYTES // 4 + 1  # elements of fp32 that fast-gloo does not copy for each rank


@pytest.mark.parametrize("length", [0, 7, LARGE])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("link", LINKS)
@on_ranks("size")
def test_every_collective_gives_its_value_and_leaves_its_input(
    world: World, link: str, length: int
) -> None:
    n, r = world.size, world.rank
    axis = world.axis("test", range(n), link=link)
    for dtype in DTYPES:
        wide = torch.arange(n * length * 2, device=world.device).view(n, 2 * length) % 5
        x = (wide + r).to(dtype)[:, ::2]
        before = x.clone()
        inputs = torch.stack([wide[:, ::2] + rank for rank in range(n)]).to(dtype)
        assert torch.equal(axis.all_reduce(x), inputs.sum(0).to(dtype)), (link, dtype)
        assert torch.equal(axis.all_reduce(x, op="max"), inputs.amax(0)), (link, dtype)
        assert torch.equal(axis.all_gather(x), inputs.flatten(0, 1)), (link, dtype)
        assert torch.equal(axis.reduce_scatter(x), inputs.sum(0).to(dtype)[r : r + 1]), (
            link,
            dtype,
        )
        assert torch.equal(axis.all_to_all(x), inputs[:, r]), (link, dtype)
        assert torch.equal(axis.broadcast(x, source=n - 1), inputs[n - 1]), (link, dtype)
        if dtype.is_floating_point:
            mean = (inputs.sum(0) / n).to(dtype)
            assert torch.equal(axis.all_reduce(x, op="mean"), mean)
            assert torch.equal(axis.reduce_scatter(x, op="mean"), mean[r : r + 1])
        assert torch.equal(x, before), "an input was changed"
        inside = x.contiguous()
        address = inside.data_ptr()
        axis.all_reduce(inside, out=inside)
        assert inside.data_ptr() == address
        assert torch.equal(inside, inputs.sum(0).to(dtype))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("link", LINKS)
@on_ranks("size")
def test_collectives_and_messages_may_be_waited_for_in_any_order(world: World, link: str) -> None:
    axis, n, me = world.axis("several", range(world.size), link=link), world.size, world.rank
    xs = [torch.full((4 * n,), float(i + me)) for i in range(4)]
    outs = [torch.empty(4 * n), torch.empty(4), torch.empty(4 * n * n), torch.empty(4 * n)]
    message, received = torch.full((4,), float(me)), torch.empty(4)
    works = [
        axis.start("all_reduce", xs[0], out=outs[0]),
        *axis.start_exchange([(message, (me + 1) % n)], [(received, (me - 1) % n)]),
        axis.start("reduce_scatter", xs[1], out=outs[1]),
        axis.start("all_gather", xs[2], out=outs[2]),
        axis.start("all_reduce", xs[3], out=outs[3], op="max"),
    ]
    for work in works[:: 1 if me else -1]:  # the waits' order differs between ranks
        work.wait()
        work.wait()
    ranks = sum(range(n))
    assert outs[0].unique().tolist() == [ranks]
    assert outs[1].unique().tolist() == [ranks + n]
    assert outs[2].view(n, -1)[:, 0].tolist() == [2.0 + r for r in range(n)]
    assert outs[3].unique().tolist() == [3 + n - 1]
    assert received.unique().tolist() == [(me - 1) % n]


@pytest.mark.parametrize("length", [17, 40_000])
@pytest.mark.parametrize("link", LINKS)
@on_ranks(4)
def test_an_all_reduce_gives_every_rank_the_same_bits(world: World, link: str, length: int) -> None:
    axis = world.axis("test", range(world.size), link=link)
    generator = torch.Generator().manual_seed(world.rank)
    x = torch.randn(length, generator=generator).to(world.device)
    total = axis.all_reduce(x)
    rows = axis.all_gather(total.unsqueeze(0))
    assert bool((rows == rows[0]).all())


def sum_over_half(world: World) -> tuple[list[float], bool]:
    half = [r for r in range(world.size) if r % 2 == world.rank % 2]
    axis = world.axis("half", half)
    total = axis.all_reduce(torch.tensor([float(world.rank)], device=world.device))
    return total.tolist(), axis is world.axis("half", half)


def test_axes_of_one_world_do_not_meet_and_are_made_once(pool) -> None:
    assert pool(4).run(sum_over_half) == [
        ([2.0], True),
        ([4.0], True),
        ([2.0], True),
        ([4.0], True),
    ]


def send_wrong_shape(world: World) -> str:
    checked = World(check=True, device=world.device)
    axis = checked.axis("pipeline", range(2))
    first, second = torch.ones(4, device=world.device), torch.ones(3, device=world.device)
    if world.rank == 0:
        axis.send(first, 1)
    else:
        assert axis.recv(torch.empty_like(first), 0).sum() == 4
    with pytest.raises(CollectiveError) as caught:
        if world.rank == 0:
            axis.send(second, 1)
        else:
            axis.recv(torch.empty_like(first), 0)
    return str(caught.value)


def test_a_message_of_another_shape_is_refused_at_both_ends(pool) -> None:
    for text in pool(2).run(send_wrong_shape):
        assert "rank 0 of the pipeline axis sends float32[3]" in text
        assert "but the receiver, rank 1, expects float32[4] (tag 0)" in text
    pool(2).stop()  # what the one that came first has started is still under way


@on_ranks(2)
def test_misuse_is_told_what_to_do(world: World) -> None:
    axis = world.whole
    x = torch.zeros(2, 3, device=world.device)
    with pytest.raises(ValueError, match="out must be contiguous"):
        axis.all_gather(x, out=torch.zeros(2, 3, device=world.device))
    with pytest.raises(ValueError, match="choose sum, mean or max"):
        axis.all_reduce(x, op="min")
    with pytest.raises(ValueError, match="it has no such rank"):
        axis.broadcast(x, source=9)
    with pytest.raises(ValueError, match="this is rank"):
        axis.send(x, world.rank)
    with pytest.raises(ValueError, match="is not on the other axis"):
        world.axis("other", [r for r in range(world.size) if r != world.rank])
    for ranks in ([world.rank, world.size], [world.rank, world.rank], [-1, world.rank]):
        with pytest.raises(ValueError, match="name each rank once, from 0 to"):  # not a hang
            world.axis("other", ranks)
    with pytest.raises(ValueError, match='choose from "torch", "fast-gloo", "shared-memory"'):
        world.axis("test", range(world.size), link="carrier pigeon")


def test_an_axis_that_stands_alone_communicates_nothing() -> None:
    axis = Axis.alone("tensor")
    x = torch.ones(2)
    assert axis.all_reduce(x) is x
    assert axis.all_gather(x) is x
    axis.barrier()
    with pytest.raises(ValueError, match="stands alone"):
        _ = axis.group


def test_join_without_torchrun_says_how_to_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match="torchrun --nproc-per-node=N"):
        World.join()


def add_in_both_widths(world: World, link: str, length: int) -> list[list[float]]:
    """256 and three times 1, added and averaged over the ranks; plain, then in fp32."""
    values = []
    value = 256.0 if world.rank == 0 else 1.0
    for wide_sums in (False, True):
        again = World(device=world.device, wide_sums=wide_sums)
        axis = again.axis("test", range(world.size), link=link)
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.full((world.size * length, 2), value, dtype=dtype, device=world.device)
            before = x.clone()
            with Ledger() as ledger:
                results = [
                    axis.all_reduce(x),
                    axis.reduce_scatter(x),
                    axis.all_reduce(x, op="mean"),
                    axis.all_reduce(x.clone(), out=x.clone()),
                    axis.all_reduce(x, op="max"),
                ]
            assert torch.equal(x, before)
            assert all(result.dtype == dtype for result in results)
            # Plain gloo adds each piece of a tensor in another order of the ranks.
            if wide_sums or dtype == torch.float32 or link not in PLAIN:
                assert all((result == result.flatten()[0]).all() for result in results)
            payloads = [entry.payload / x.nbytes for entry in ledger.entries]
            twice = 2 if wide_sums and dtype == torch.bfloat16 else 1
            assert payloads == [twice, twice, twice, twice, 1]
            values.append([float(result.flatten()[0]) for result in results])
        again.close()
    return values


@pytest.mark.parametrize("length", [1, 70_000])
@pytest.mark.parametrize("link", LINKS)
def test_half_precision_is_added_in_fp32_under_wide_sums(pool, link, length) -> None:
    """259 rounds to 260 in bf16, and 64.75 to 65; added in bf16, 1 is lost three times."""
    for narrow, single, wide_sums, same in pool(4).run(add_in_both_widths, link, length):
        if link not in PLAIN:
            assert narrow == [256.0, 256.0, 64.0, 256.0, 256.0]
        assert wide_sums == [260.0, 260.0, 65.0, 260.0, 256.0]
        assert single == same == [259.0, 259.0, 64.75, 259.0, 256.0]


# ------------------------------------------------------------------ uneven all-to-all


@pytest.mark.parametrize("link", ["torch", "fast-gloo", "shared-memory"])
@on_ranks(4)
def test_an_uneven_all_to_all_carries_as_many_rows_as_are_said_and_none_at_all(
    world: World, link: str
) -> None:
    """Rank r sends r·n + j rows to rank j, each of which says so; some send and get nothing."""
    axis = world.axis("tensor", range(world.size), link=link)
    n = world.size
    counts = torch.arange(n * n).view(n, n) % 4
    counts[1] = 0  # a rank that sends nothing
    counts[:, 0] = 0  # and one that nothing comes to
    sent_rows, received_rows = counts[world.rank].tolist(), counts[:, world.rank].tolist()
    x = torch.cat([torch.full((k, 3), 10.0 * world.rank + j) for j, k in enumerate(sent_rows)])
    wide = torch.cat([x, x + 1], 1).to(world.device)
    with Ledger() as ledger:
        received = axis.all_to_all(wide[:, :3], rows=(sent_rows, received_rows))  # not contiguous
    expected = [torch.full((k, 3), 10.0 * r + world.rank) for r, k in enumerate(received_rows)]
    assert torch.equal(received.cpu(), torch.cat(expected))
    assert [(e.op, e.payload) for e in ledger.entries] == [("all_to_all", x.nbytes)]


@on_ranks(2)
def test_an_all_to_all_never_writes_into_a_view_where_gloo_would_put_wrong_data(
    world: World,
) -> None:
    wide = torch.zeros(4, 2, device=world.device)
    with pytest.raises(ValueError, match="out must be contiguous"):
        world.whole.all_to_all(torch.ones(4, 1), out=wide[:, :1], rows=([2, 2], [2, 2]))
