"""The shared-memory link against plain arithmetic; what it refuses; what it leaves behind.

Links with small slots and cells stand in for large tensors: what matters is the number of steps.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from shardlab.comm import CollectiveError, World
from shardlab.comm.host import ProcessInfo
from shardlab.comm.pending import PeerLostError
from shardlab.links import mapped_file, shared_memory
from shardlab.links.shared_memory import SharedMemoryLink
from tests.limits import LIMIT
from tests.shardlab.pool import on_ranks

SLOT = 4096  # bytes: one page
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip


def make_link(
    world: World, *, slot: int = SLOT, timeout: float = LIMIT, links=None, where: str = "test"
) -> SharedMemoryLink:
    return SharedMemoryLink(
        dist.PrefixStore(where, world._store), range(world.size), world.rank,
        timeout=timeout, slot=slot, links=links,
    )  # fmt: skip


def draw(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a rank's input: small whole numbers, so that every dtype adds them exactly."""
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(0, 8, shape, generator=generator).to(dtype)


def check_collectives(world: World, dtype: torch.dtype, shapes: list[tuple[int, ...]]) -> None:
    link, n, me = make_link(world), world.size, world.rank
    for shape in shapes:
        inputs = [draw(r, shape, dtype) for r in range(n)]
        x = inputs[me].clone()
        out = torch.empty_like(x)
        wide = torch.empty((n * shape[0], *shape[1:]) if shape else (n,), dtype=dtype)
        case = f"{dtype} {shape}"

        link.start_all_reduce(x, out, "sum").wait()
        assert torch.equal(out, reduce_tensors(inputs, torch.add)), f"all_reduce {case}"
        if not dtype.is_complex:
            link.start_all_reduce(x, out, "max").wait()
            assert torch.equal(out, reduce_tensors(inputs, torch.maximum)), f"all_reduce max {case}"
        link.start_all_gather(x, wide).wait()
        assert torch.equal(wide, torch.stack(inputs).view(wide.shape)), f"all_gather {case}"
        for source in (0, n - 1):
            out.copy_(x)
            link.start_broadcast(out, source).wait()
            assert torch.equal(out, inputs[source]), f"broadcast {case}"

        cut = [torch.stack([draw(r * n + j, shape, dtype) for j in range(n)]) for r in range(n)]
        link.start_reduce_scatter(cut[me], out, "sum").wait()
        assert torch.equal(out, reduce_tensors([c[me] for c in cut], torch.add)), (
            f"reduce_scatter {case}"
        )
        received = torch.empty_like(cut[me])
        link.start_all_to_all(cut[me], received).wait()
        assert torch.equal(received, torch.stack([c[me] for c in cut])), f"all_to_all {case}"

        assert torch.equal(x, inputs[me]), f"the input was changed: {case}"
        link.start_all_reduce(x, x, "sum").wait()
        assert torch.equal(x, reduce_tensors(inputs, torch.add)), f"all_reduce in place {case}"
        link.barrier()
    link.close()


def reduce_tensors(tensors: list[Tensor], operation) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = operation(total, tensor)
    return total


SHAPES = [(), (1,), (5,), (2, 3, 4), (0, 3), (1023,), (1025,), (3, 1001), (20_001,)]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_collectives_of_one_step_and_of_many_give_the_right_values(pool, size: int) -> None:
    pool(size).run(check_collectives, torch.float32, SHAPES)


def check_all_dtypes(world: World, shapes: list[tuple[int, ...]]) -> None:
    for dtype in DTYPES:
        check_collectives(world, dtype, shapes)


@pytest.mark.parametrize("size", [2, 4])
def test_collectives_carry_every_dtype(pool, size: int) -> None:
    pool(size).run(check_all_dtypes, [(3, 5), (5001,)])


def sum_tensors(world: World, dtype: torch.dtype) -> list[Tensor]:
    link = make_link(world, slot=4 * SLOT)
    results = []
    for count in (7, 6_000, 70_001):
        inputs = [
            torch.randn(count, generator=torch.Generator().manual_seed(r)).to(dtype)
            for r in range(world.size)
        ]
        out = torch.empty(count, dtype=dtype)
        link.start_all_reduce(inputs[world.rank], out, "sum").wait()
        assert torch.equal(out, reduce_tensors(inputs, torch.add)), count
        results.append(out)
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sum_is_added_in_rank_order_and_has_the_same_bits_on_every_rank(pool, dtype) -> None:
    first, *rest = pool(4).run(sum_tensors, dtype)
    for results in rest:
        assert all(torch.equal(a, b) for a, b in zip(first, results, strict=True))


@on_ranks(2)
def test_two_links_may_be_started_in_another_order_on_each_rank(world: World) -> None:
    first, second = make_link(world), make_link(world)
    x, a, b = torch.ones(9), torch.empty(9), torch.empty(9)
    pairs = [(first, a), (second, b)]
    works = [link.start_all_reduce(x, out, "sum") for link, out in pairs[:: 1 - 2 * world.rank]]
    for work in works:
        work.wait()
    assert a.sum() == b.sum() == 18


class LateStore(dist.HashStore):
    """A store for a rank that the system interrupts before it reads what the first rank wrote."""

    def __init__(self, store: dist.Store, next_file: str) -> None:
        super().__init__()
        self._store, self._next_file = store, next_file
        self.set, self.get, self.add = store.set, store.get, store.add

    def check(self, keys: list[str]) -> bool:
        end = time.monotonic() + LIMIT
        while keys[0].startswith("1/open") and not self._store.check([self._next_file]):
            if time.monotonic() > end:
                raise TimeoutError(self._next_file)
            time.sleep(1e-3)
        return self._store.check(keys)


def test_a_rank_may_be_in_the_next_rendezvous_while_another_is_late_in_this_one() -> None:
    store, regions = dist.HashStore(), []

    def join(me: int, store: dist.Store) -> None:
        for _ in range(2):
            regions.append(mapped_file.Region(store, [0, 1], me, slot=SLOT, timeout=LIMIT))

    late_rank = threading.Thread(target=join, args=(1, LateStore(store, "2/file")))
    late_rank.start()
    join(0, store)
    late_rank.join()
    assert len(regions) == 4


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize("size", [2, 4])
@on_ranks("size")
def test_messages_that_cross_arrive_whatever_their_size(world: World) -> None:
    link, n, me = make_link(world), world.size, world.rank
    peers = [r for r in range(n) if r != me]
    for dtype in DTYPES:
        for shape in [(), (0,), (3, 5), (70_001,), (1 << 20,)][
            : 5 if dtype == torch.float32 else 3
        ]:
            outs = {r: torch.empty(shape, dtype=dtype) for r in peers}
            sends = [link.start_send(draw(me * n + r, shape, dtype), r, 0) for r in peers]
            arriving = [link.start_recv(outs[r], r, 0) for r in peers]
            for work in sends + arriving:
                work.wait()
            for r in peers:
                assert torch.equal(outs[r], draw(r * n + me, shape, dtype)), (dtype, shape)


def receive_by_tag(world: World) -> list[float]:
    link = make_link(world)
    if world.rank == 0:
        for tag, value in [(7, 1.0), (8, 2.0), (7, 3.0), (9, 4.0)]:
            link.start_send(torch.full((300_000,), value), 1, tag).wait()
        return []
    out = torch.empty(300_000)
    values = []
    for tag in (9, 7, 7, 8):
        link.start_recv(out, 0, tag).wait()
        values.append(float(out[-1]))
    return values


def test_a_receive_takes_the_first_message_of_its_tag(pool) -> None:
    assert pool(2).run(receive_by_tag)[1] == [4.0, 1.0, 3.0, 2.0]


def wait_on_another_link(world: World) -> float:
    links: list[SharedMemoryLink] = []
    links += [make_link(world, links=links), make_link(world, links=links)]
    large, small = torch.full((1 << 20,), 2.0), torch.ones(1)
    if world.rank == 0:
        sending = links[0].start_send(large, 1, 0)
        links[1].start_all_reduce(small, small, "sum").wait()
        sending.wait()
        return 0.0
    links[0].start_recv(large, 0, 0).wait()
    links[1].start_all_reduce(small, small, "sum").wait()
    return float(large.sum())


def test_a_wait_on_one_link_makes_progress_on_another_links_messages(pool) -> None:
    assert pool(2).run(wait_on_another_link)[1] == 2.0 * (1 << 20)


# ---------------------------------------------------------------------- refusals


def call_with_mismatch(world: World, what: str) -> str:
    link, is_second = make_link(world), world.rank == 1
    x = torch.ones(6 if what == "length" and is_second else 4)
    if what == "dtype" and is_second:
        x = x.double()
    with pytest.raises((CollectiveError, PeerLostError)) as caught:
        if what == "message":
            if is_second:
                link.start_recv(torch.empty(4, dtype=torch.int64), 0, 3).wait()
            link.start_send(x, 1, 3).wait()
            link.start_recv(x, 1, 3).wait()
        elif what == "collective" and is_second:
            link.start_all_gather(x, torch.empty(8)).wait()
        else:
            link.start_all_reduce(
                x, x.clone(), "max" if what == "op" and is_second else "sum"
            ).wait()
    link.close()
    return str(caught.value)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("length", ["rank 0: all_reduce sum of 4 × float32", "rank 1: all_reduce sum of 6"]),
        (
            "dtype",
            ["rank 0: all_reduce sum of 4 × float32", "rank 1: all_reduce sum of 4 × float64"],
        ),
        ("op", ["rank 0: all_reduce sum", "rank 1: all_reduce max"]),
        ("collective", ["rank 0: all_reduce sum", "rank 1: all_gather of 4"]),
    ],
)
def test_different_inputs_are_refused_with_each_ranks_input_named(pool, what, words) -> None:
    for message in pool(2).run(call_with_mismatch, what):
        assert all(word in message for word in words), message


def test_a_message_that_does_not_fit_its_receive_is_refused(pool) -> None:
    sender, receiver = pool(2).run(call_with_mismatch, "message")
    assert "rank 0 sends a message of 4 × float32 with tag 3" in receiver
    assert "rank 1 receives a message of 4 × int64" in receiver
    assert "waits for rank 1, which has left" in sender


@on_ranks(2)
def test_ranks_of_two_hosts_are_refused_by_name_on_both(world: World) -> None:
    host = f"host{world.rank}"
    process = ProcessInfo(host, f"boot of {host}", os.getpid())
    with (
        patch.object(ProcessInfo, "current", lambda: process),
        pytest.raises(CollectiveError) as caught,
    ):
        make_link(world, where="hosts")
    message = str(caught.value)
    assert "rank 0 on host0 (boot boot of host0), rank 1 on host1" in message
    assert 'link="torch"' in message


@on_ranks(2)
def test_a_tensor_of_another_device_is_refused(world: World) -> None:
    link = make_link(world)
    with pytest.raises(ValueError, match="CPU tensors; all_reduce got one on meta"):
        link.start_all_reduce(torch.empty(2, device="meta"), torch.empty(2), "sum")
    with pytest.raises(ValueError, match="CPU tensors; send got one on meta"):
        link.start_send(torch.empty(2, device="meta"), 1 - world.rank, 0)


def fill_shared_memory(world: World) -> str:
    def no_room(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with patch.object(os, "posix_fallocate", no_room, create=True):
        kind = OSError if world.rank == 0 else CollectiveError
        with pytest.raises(kind) as caught:
            make_link(world, where="full")
    assert list_files(os.getpid()) == []
    return str(caught.value)


def refuse_to_open(world: World) -> str:
    def refused(*_: object) -> None:
        time.sleep(0.2)  # until the other has found the file, and waits to hear of this rank
        raise PermissionError(errno.EACCES, "Permission denied")

    if world.rank == 0:
        with patch.object(mapped_file, "_open", refused), pytest.raises(PermissionError) as caught:
            make_link(world, where="unopened")
    else:
        with pytest.raises(CollectiveError) as caught:
            make_link(world, where="unopened")
    return str(caught.value)


def test_peers_learn_that_the_first_rank_cannot_open_its_own_file(pool) -> None:
    _, error = pool(2).run(refuse_to_open)
    assert "rank 0 could not open the shared memory: [Errno 13] Permission denied" in error


def test_a_full_shared_memory_is_an_error_and_not_a_bus_error(pool) -> None:
    maker, peer = pool(2).run(fill_shared_memory)
    assert "no room" in maker
    assert "--shm-size" in maker
    assert "rank 0 could not open the shared memory" in peer
    assert "no room" in peer


# ---------------------------------------------------------------------- what is left behind


def list_files(maker: int) -> list[str]:
    return [path.name for path in mapped_file.folder().glob(f"shardlab-{maker}-*")]


def list_files_of_link(world: World) -> tuple[int, list[str]]:
    link = make_link(world)
    link.barrier()
    files = list_files(os.getpid())
    link.barrier()
    return os.getpid(), files


def test_the_file_has_no_name_while_the_link_lives(pool) -> None:
    (maker, files), _ = pool(2).run(list_files_of_link)
    assert files == list_files(maker) == []


def test_only_stale_files_of_dead_ranks_are_removed(tmp_path: Path) -> None:
    dead = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(dead, 0)
    stale = tmp_path / f"shardlab-{dead}-0123"
    remaining = [
        tmp_path / f"shardlab-{os.getpid()}-4567",
        tmp_path / "shardlab-notes-1",
        tmp_path / "x",
    ]
    for path in [stale, *remaining]:
        path.write_bytes(b"")
    mapped_file._remove_stale(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(remaining)


# ---------------------------------------------------------------------- waiting


@on_ranks(2)
def test_a_rank_waits_asleep_for_a_peer_that_comes_late(world: World) -> None:
    link, x = make_link(world), torch.ones(3)
    if world.rank == 1:
        time.sleep(10 * shared_memory._YIELD_SECONDS)
    link.start_all_reduce(x, x, "sum").wait()
    assert x.sum().item() == 6.0


def come_too_late(world: World) -> str:
    """Rank 1 comes only when rank 0 has given up."""
    short = 0.1  # seconds
    link, x = make_link(world, timeout=LIMIT if world.rank else short), torch.ones(3)
    if world.rank == 1:
        world._store.get("rank 0 gave up")
        link.start_all_reduce(x, x, "sum").wait()
        return ""
    with pytest.raises(PeerLostError) as caught:
        link.start_all_reduce(x, x, "sum").wait()
    world._store.set("rank 0 gave up", "")
    return str(caught.value)


def test_a_wait_is_bounded_and_names_the_rank_that_did_not_come(pool) -> None:
    message, _ = pool(2).run(come_too_late)
    assert "all_reduce over the shared memory of ranks [0, 1] waits for rank 1, which" in message
    assert "did not come within 0.1 s (process " in message
