"""The shared-memory link against plain arithmetic; what it refuses; what it leaves behind.

Links with small slots and cells stand in for large tensors: what matters is the number of steps.
"""

from __future__ import annotations

import errno
import mmap
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
from shardlab.links.shared_memory import SharedMemoryLink, patience, region
from tests.limits import LIMIT

SLOT = 4096  # bytes: one page
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip


def link_of(
    world: World, *, slot: int = SLOT, timeout: float = LIMIT, beside=None, where: str = "test"
) -> SharedMemoryLink:
    return SharedMemoryLink(
        dist.PrefixStore(where, world._store), range(world.size), world.rank,
        timeout=timeout, slot=slot, beside=beside,
    )  # fmt: skip


def drawn(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """What a rank brings: small whole numbers, so that every dtype adds them exactly."""
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(0, 8, shape, generator=generator).to(dtype)


def collectives(world: World, dtype: torch.dtype, shapes: list[tuple[int, ...]]) -> None:
    link, n, me = link_of(world), world.size, world.rank
    for shape in shapes:
        theirs = [drawn(r, shape, dtype) for r in range(n)]
        x = theirs[me].clone()
        out = torch.empty_like(x)
        wide = torch.empty((n * shape[0], *shape[1:]) if shape else (n,), dtype=dtype)
        case = f"{dtype} {shape}"

        link.start_all_reduce(x, out, "sum").wait()
        assert torch.equal(out, joined(theirs, torch.add)), f"all_reduce {case}"
        if not dtype.is_complex:
            link.start_all_reduce(x, out, "max").wait()
            assert torch.equal(out, joined(theirs, torch.maximum)), f"all_reduce max {case}"
        link.start_all_gather(x, wide).wait()
        assert torch.equal(wide, torch.stack(theirs).view(wide.shape)), f"all_gather {case}"
        for source in (0, n - 1):
            out.copy_(x)
            link.start_broadcast(out, source).wait()
            assert torch.equal(out, theirs[source]), f"broadcast {case}"

        cut = [torch.stack([drawn(r * n + j, shape, dtype) for j in range(n)]) for r in range(n)]
        link.start_reduce_scatter(cut[me], out, "sum").wait()
        assert torch.equal(out, joined([c[me] for c in cut], torch.add)), f"reduce_scatter {case}"
        across = torch.empty_like(cut[me])
        link.start_all_to_all(cut[me], across).wait()
        assert torch.equal(across, torch.stack([c[me] for c in cut])), f"all_to_all {case}"

        assert torch.equal(x, theirs[me]), f"the input was changed: {case}"
        link.start_all_reduce(x, x, "sum").wait()
        assert torch.equal(x, joined(theirs, torch.add)), f"all_reduce in place {case}"
        link.barrier()
    link.close()


def joined(tensors: list[Tensor], join) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = join(total, tensor)
    return total


SHAPES = [(), (1,), (5,), (2, 3, 4), (0, 3), (1023,), (1025,), (3, 1001), (20_001,)]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_collectives_of_one_step_and_of_many_give_what_arithmetic_says(pool, size: int) -> None:
    pool(size).run(collectives, torch.float32, SHAPES)


def all_dtypes(world: World, shapes: list[tuple[int, ...]]) -> None:
    for dtype in DTYPES:
        collectives(world, dtype, shapes)


@pytest.mark.parametrize("size", [2, 4])
def test_collectives_carry_every_dtype(pool, size: int) -> None:
    pool(size).run(all_dtypes, [(3, 5), (5001,)])


def sums(world: World, dtype: torch.dtype) -> list[Tensor]:
    link = link_of(world, slot=4 * SLOT)
    results = []
    for count in (7, 6_000, 70_001):
        theirs = [
            torch.randn(count, generator=torch.Generator().manual_seed(r)).to(dtype)
            for r in range(world.size)
        ]
        out = torch.empty(count, dtype=dtype)
        link.start_all_reduce(theirs[world.rank], out, "sum").wait()
        assert torch.equal(out, joined(theirs, torch.add)), count
        results.append(out)
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sum_is_added_in_rank_order_and_has_the_same_bits_on_every_rank(pool, dtype) -> None:
    first, *others = pool(4).run(sums, dtype)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def several(world: World) -> None:
    link = link_of(world)
    xs = [
        torch.full((count,), float(world.rank + i))
        for i, count in enumerate((10, 3000, 10, 5, 9000, 1))
    ]
    outs = [torch.empty_like(x) for x in xs]
    works = [link.start_all_reduce(x, out, "sum") for x, out in zip(xs, outs, strict=True)]
    order = [5, 0, 3, 1, 4, 2] if world.rank else [0, 1, 2, 3, 4, 5]
    for index in order:
        works[index].wait()
        works[index].wait()
    ranks = sum(range(world.size))
    for i, out in enumerate(outs):
        assert torch.equal(out, torch.full_like(out, float(ranks + i * world.size)))


@pytest.mark.parametrize("size", [2, 4])
def test_collectives_started_together_may_be_waited_for_in_any_order(pool, size: int) -> None:
    pool(size).run(several)


def crossing(world: World) -> None:
    one, two = link_of(world), link_of(world)
    x, a, b = torch.ones(9), torch.empty(9), torch.empty(9)
    pairs = [(one, a), (two, b)]
    works = [link.start_all_reduce(x, out, "sum") for link, out in pairs[:: 1 - 2 * world.rank]]
    for work in works:
        work.wait()
    assert a.sum() == b.sum() == 18


def test_two_links_may_be_started_in_another_order_on_each_rank(pool) -> None:
    pool(2).run(crossing)


class Interrupted:
    """A store for a rank that the system interrupts before it reads what the first rank wrote.

    When it goes on, `change` has been written over.
    """

    def __init__(self, store: dist.Store, change: str) -> None:
        self._store, self._change, self._first = store, change, b""

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def check(self, keys: list[str]) -> bool:
        if keys[0].startswith("open/") and not self._first:
            self._first = self._store.get(self._change)
            end = time.monotonic() + LIMIT
            while self._store.get(self._change) == self._first and time.monotonic() < end:
                time.sleep(1e-3)
        return self._store.check(keys)


def test_a_rank_may_be_in_the_next_meeting_while_another_is_late_in_this_one() -> None:
    store, seen = dist.HashStore(), []

    def meet(me: int, store) -> None:
        for _ in range(2):
            seen.append(region.Region.meet(store, [0, 1], me, SLOT, timeout=LIMIT))

    late = threading.Thread(target=meet, args=(1, Interrupted(store, "file")))
    late.start()
    meet(0, store)
    late.join()
    assert len(seen) == 4


# ---------------------------------------------------------------------- messages


SHORT: list[tuple[int, ...]] = [(), (0,), (3, 5)]
LONG: list[tuple[int, ...]] = [(70_001,), (1 << 20,)]


def messages(world: World) -> None:
    link, n, me = link_of(world), world.size, world.rank
    peers = [r for r in range(n) if r != me]
    for dtype in DTYPES:
        for shape in [(), (0,), (3, 5), (70_001,), (1 << 20,)][
            : 5 if dtype == torch.float32 else 3
        ]:
            outs = {r: torch.empty(shape, dtype=dtype) for r in peers}
            sends = [link.start_send(drawn(me * n + r, shape, dtype), r, 0) for r in peers]
            arriving = [link.start_recv(outs[r], r, 0) for r in peers]
            for work in sends + arriving:
                work.wait()
            for r in peers:
                assert torch.equal(outs[r], drawn(r * n + me, shape, dtype)), (dtype, shape)


@pytest.mark.parametrize("size", [2, 4])
def test_messages_that_cross_arrive_whatever_their_size(pool, size: int) -> None:
    pool(size).run(messages)


def tagged(world: World) -> list[float]:
    link = link_of(world)
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
    assert pool(2).run(tagged)[1] == [4.0, 1.0, 3.0, 2.0]


def helping(world: World) -> float:
    links: list[SharedMemoryLink] = []
    links += [link_of(world, beside=links), link_of(world, beside=links)]
    large, small = torch.full((1 << 20,), 2.0), torch.ones(1)
    if world.rank == 0:
        sending = links[0].start_send(large, 1, 0)
        links[1].start_all_reduce(small, small, "sum").wait()
        sending.wait()
        return 0.0
    links[0].start_recv(large, 0, 0).wait()
    links[1].start_all_reduce(small, small, "sum").wait()
    return float(large.sum())


def test_a_wait_on_one_link_moves_the_messages_of_another(pool) -> None:
    assert pool(2).run(helping)[1] == 2.0 * (1 << 20)


# ---------------------------------------------------------------------- refusals


def mismatch(world: World, what: str) -> str:
    link, one = link_of(world), world.rank == 1
    x = torch.ones(6 if what == "length" and one else 4)
    if what == "dtype" and one:
        x = x.double()
    with pytest.raises((CollectiveError, PeerLostError)) as caught:
        if what == "message":
            if one:
                link.start_recv(torch.empty(4, dtype=torch.int64), 0, 3).wait()
            link.start_send(x, 1, 3).wait()
            link.start_recv(x, 1, 3).wait()
        elif what == "collective" and one:
            link.start_all_gather(x, torch.empty(8)).wait()
        else:
            link.start_all_reduce(x, x.clone(), "max" if what == "op" and one else "sum").wait()
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
def test_ranks_that_bring_different_things_are_told_who_brought_what(pool, what, words) -> None:
    for said in pool(2).run(mismatch, what):
        assert all(word in said for word in words), said


def test_a_message_that_does_not_fit_its_receive_is_refused(pool) -> None:
    sender, receiver = pool(2).run(mismatch, "message")
    assert "rank 0 sends a message of 4 × float32 with tag 3" in receiver
    assert "rank 1 receives a message of 4 × int64" in receiver
    assert "waits for rank 1, which has left" in sender


def elsewhere(world: World) -> str:
    host = f"host{world.rank}"
    process = ProcessInfo(host, f"boot of {host}", os.getpid())
    with (
        patch.object(ProcessInfo, "current", lambda: process),
        pytest.raises(CollectiveError) as caught,
    ):
        link_of(world, where="hosts")
    return str(caught.value)


def test_ranks_of_two_hosts_are_refused_by_name_on_both(pool) -> None:
    for said in pool(2).run(elsewhere):
        assert "rank 0 on host0 (boot boot of host0), rank 1 on host1" in said
        assert 'link="torch"' in said


def refusals(world: World) -> None:
    link = link_of(world)
    with pytest.raises(ValueError, match="CPU tensors; all_reduce sum got one on meta"):
        link.start_all_reduce(torch.empty(2, device="meta"), torch.empty(2), "sum")
    with pytest.raises(ValueError, match="CPU tensors; send got one on meta"):
        link.start_send(torch.empty(2, device="meta"), 1 - world.rank, 0)


def test_a_tensor_of_another_device_is_refused(pool) -> None:
    pool(2).run(refusals)


def full(world: World) -> str:
    def no_room(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with patch.object(os, "posix_fallocate", no_room, create=True):
        kind = OSError if world.rank == 0 else CollectiveError
        with pytest.raises(kind) as caught:
            link_of(world, where="full")
    assert leftovers(os.getpid()) == []
    return str(caught.value)


def unopened(world: World) -> str:
    def refused(*_: object) -> None:
        time.sleep(0.2)  # until the other has found the file, and waits to hear of this rank
        raise PermissionError(errno.EACCES, "Permission denied")

    if world.rank == 0:
        with patch.object(region, "_open", refused), pytest.raises(PermissionError) as caught:
            link_of(world, where="unopened")
    else:
        with pytest.raises(CollectiveError) as caught:
            link_of(world, where="unopened")
    return str(caught.value)


def test_others_learn_that_the_first_rank_cannot_open_its_own_file(pool) -> None:
    _, other = pool(2).run(unopened)
    assert "rank 0 could not open the shared memory: [Errno 13] Permission denied" in other


def test_a_full_shared_memory_is_an_error_and_not_a_bus_error(pool) -> None:
    maker, other = pool(2).run(full)
    assert "no room" in maker
    assert "--shm-size" in maker
    assert "rank 0 could not open the shared memory" in other
    assert "no room" in other


# ---------------------------------------------------------------------- what is left behind


def leftovers(maker: int) -> list[str]:
    return [path.name for path in region.folder().glob(f"shardlab-{maker}-*")]


def named(world: World) -> tuple[int, list[str]]:
    link = link_of(world)
    link.barrier()
    files = leftovers(os.getpid())
    link.barrier()
    return os.getpid(), files


def test_the_file_has_no_name_while_the_link_lives(pool) -> None:
    (maker, files), _ = pool(2).run(named)
    assert files == leftovers(maker) == []


def test_a_sweep_removes_what_dead_ranks_left_and_nothing_else(tmp_path: Path) -> None:
    dead = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(dead, 0)
    stale = tmp_path / f"shardlab-{dead}-0123"
    kept = [
        tmp_path / f"shardlab-{os.getpid()}-4567",
        tmp_path / "shardlab-notes-1",
        tmp_path / "x",
    ]
    for path in [stale, *kept]:
        path.write_bytes(b"")
    region._sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def fenced(world: World) -> None:
    with patch("platform.machine", lambda: "aarch64"):
        collectives(world, torch.float32, [(5,), (5001,)])
        messages(world)


def test_the_fenced_path_of_other_machines_gives_the_same(pool) -> None:
    pool(2).run(fenced)


# ------------------------------------------------------------------ waiting beside strangers


def bells() -> list[patience.Bells]:
    """Two ranks', as each sees them."""
    memory = mmap.mmap(-1, 4096)
    address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    return [patience.Bells(memoryview(memory).cast("q"), address, [0, 16], me) for me in (0, 1)]


def wait_for_a_ring(mine: patience.Bells, theirs: patience.Bells) -> None:
    """Wait for what the other rank does once this one sleeps."""
    sleeps, came = threading.Event(), threading.Event()

    def ready() -> bool:
        if mine._words[0]:
            sleeps.set()
        return came.is_set()

    def peer() -> None:
        if sleeps.wait(LIMIT):
            came.set()
            theirs.ring(0)

    thread = threading.Thread(target=peer)
    thread.start()
    patience.until(ready, lambda _: None, mine)
    thread.join()
    assert not mine._words[0], "nobody rings for a rank that is awake"


@pytest.mark.parametrize("kernel", [True, False], ids=["futex", "no futex"])
def test_after_a_yield_that_a_stranger_took_a_rank_sleeps_until_it_is_rung(
    monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    mine, theirs = bells()
    if not kernel:  # as on a system without
        monkeypatch.setattr(mine, "_call", None)
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(time.sleep(2 * patience._LONG)))
    monkeypatch.setattr(patience, "_YIELDING", 600.0)
    monkeypatch.setattr(patience, "_SHARED", 600.0)
    wait_for_a_ring(mine, theirs)
    assert len(yields) == 1
    wait_for_a_ring(mine, theirs)
    assert len(yields) == 1, "the core is known to be shared"


def test_a_rank_that_nobody_rings_looks_up_and_may_give_up() -> None:
    def watch(waited: float) -> None:
        raise PeerLostError

    with pytest.raises(PeerLostError):
        patience.until(lambda: False, watch, bells()[0])
