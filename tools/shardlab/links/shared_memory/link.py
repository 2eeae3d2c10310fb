"""The shared-memory link, which an axis calls instead of gloo or NCCL.

It carries CPU tensors between processes of one host, without threads or sockets. All progress
happens inside calls: a wait on any collective or message also makes progress on all messages of
this process, on every link of its world, so that messages that cross cannot block each other.
PyTorch's dispatcher doesn't see these collectives; the link reports them to the ledger.

It must not be used from several threads at once.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from shardlab.comm.faults import Store
from shardlab.comm.pending import PeerLostError, Rows
from shardlab.comm.tracing import record_as
from shardlab.comm.transport import Transport
from shardlab.links.shared_memory import waiting
from shardlab.links.shared_memory.layout import RegionLayout
from shardlab.links.shared_memory.mailbox import Message
from shardlab.links.shared_memory.messages import MessageBatch, Messages
from shardlab.links.shared_memory.plans import (
    AllGather,
    AllReduce,
    AllToAll,
    Barrier,
    Broadcast,
    Plan,
    ReduceScatter,
)
from shardlab.links.shared_memory.queue import Collective, Queue
from shardlab.links.shared_memory.region import Region
from shardlab.links.shared_memory.slots import Slots

SLOTS_BYTES = 4 << 20  # of one slot of all ranks; larger slots need fewer steps
WHOLE_BYTES = 64 << 10  # up to this size each of more than two ranks adds the whole tensor
_SPINS = 400  # reads of a flag before the rank yields: about 20 µs; a tenth if cores are few
_ORDERED = ("x86_64", "AMD64", "i686", "x86")  # machines that need no fence
_RENDEZVOUS_SECONDS = 60.0  # at least: a process may take that long to start
_MAX_PLANS = 1000  # plans in the cache
_REDUCTIONS = {"sum": "sum", "mean": "sum", "max": "max"}  # the axis divides


class SharedMemoryLink(Transport):
    """Collectives and messages between ranks of one host.

    Args:
        store: the ranks' key-value store (`set`, `get`, `check`), with a prefix of its own.
        ranks: the members' global ranks, in order.
        rank: this rank's global number.
        timeout: seconds after which a wait raises an error.
        links: all links of this process, including this one: while this link waits, it makes
            progress on the messages of all of them. By default this link only.
        slot: bytes of a rank's slot, and so of one step of a collective.

    Raises:
        CollectiveError: a rank is on another host, or does not join in time.
        OSError: the shared memory doesn't fit.
    """

    device = torch.device("cpu")
    groups_exchanges = False

    def __init__(
        self, store: Store, ranks: Sequence[int], rank: int, *, timeout: float,
        links: Iterable[SharedMemoryLink] | None = None, slot: int | None = None,
    ) -> None:  # fmt: skip
        self._ranks = tuple(ranks)
        self._size = len(self._ranks)
        self._me = self._ranks.index(rank)
        self._timeout = timeout
        self._spins = range(_SPINS if self._size <= waiting.count_cores() else _SPINS // 10)
        self._links = (self,) if links is None else links
        slot = slot or max(64 << 10, SLOTS_BYTES // self._size // 4096 * 4096)
        self._layout = layout = RegionLayout(self._size, slot)
        rendezvous_timeout = max(timeout, _RENDEZVOUS_SECONDS)
        self._region = region = Region.rendezvous(
            store, self._ranks, self._me, layout.size, rendezvous_timeout
        )
        self._words = words = region.words
        flags = [layout.sleeping_word(r) for r in range(self._size)]
        self._waiter = waiter = waiting.FutexWaiter(words, region.bytes.data_ptr(), flags, self._me)
        fence = None if platform.machine() in _ORDERED else waiting.Fence()
        self._slots = Slots(region.bytes, layout, self._me)
        self._plans: dict[Any, Plan] = {}
        self._queue = Queue(
            words, layout, ranks=self._ranks, me=self._me, wait=self._await_word,
            waiter=waiter, fence=fence,
        )  # fmt: skip
        self.messages = Messages(
            region=region, layout=layout, ranks=self._ranks, me=self._me, waiter=waiter,
            fence=fence, finish=self._finish,
        )  # fmt: skip
        self._empty = torch.empty(0, dtype=torch.uint8)

    def close(self) -> None:
        """Tell the peers that this rank has left, and release the memory."""
        self._words[self._layout.taken_word(self._me) + 1] = 1
        self._waiter.wake_all()
        self._region.close()

    # ------------------------------------------------------------------ collectives

    def barrier(self) -> None:
        """Return when every rank has called this."""
        self._start(Barrier, "barrier", self._empty, self._empty).wait()

    def start_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Collective:
        """Start an all-reduce of `x` into `out`, which may be `x`; "mean" only adds."""
        if self._size > 2 and x.nbytes > WHOLE_BYTES:
            with record_as("all_reduce", x.nbytes, self._ranks, x.dtype):
                return self._start_chunked_all_reduce(x, out, op)
        return self._start(AllReduce, f"all_reduce {_REDUCTIONS[op]}", x, out)

    def start_all_gather(self, x: Tensor, out: Tensor) -> Collective:
        """Start an all-gather of `x` into `out`."""
        return self._start(AllGather, "all_gather", x, out)

    def start_reduce_scatter(self, x: Tensor, out: Tensor, op: str) -> Collective:
        """Start a reduce-scatter of `x` into `out`; "mean" only adds."""
        return self._start(ReduceScatter, f"reduce_scatter {_REDUCTIONS[op]}", x, out)

    def start_all_to_all(
        self, x: Tensor, out: Tensor, rows: Rows = None
    ) -> Collective | MessageBatch:
        """Start an all-to-all of `x` into `out`.

        Uneven pieces are sent as messages, because a slot has equal rows.
        """
        if rows is None:
            return self._start(AllToAll, "all_to_all", x, out)
        to, source = (torch.split(t, [*n]) for t, n in zip((x, out), rows, strict=True))
        with record_as("all_to_all", x.nbytes, self._ranks, x.dtype):
            source[self._me].copy_(to[self._me])
            peers = [peer for peer in range(self._size) if peer != self._me]
            works = [self.start_recv(source[p], p, 0) for p in peers if source[p].numel()]
            return MessageBatch(
                works + [self.start_send(to[p], p, 0) for p in peers if to[p].numel()]
            )

    def start_broadcast(self, out: Tensor, source: int) -> Collective:
        """Start a broadcast of the `out` of rank `source` of this axis, in place."""
        return self._start(Broadcast, "broadcast", out, out, source=source)

    def _start(
        self, kind: type[Plan], name: str, x: Tensor, out: Tensor, *, source: int = 0,
        after: Collective | None = None,
    ) -> Collective:  # fmt: skip
        if not (x.is_cpu and out.is_cpu):
            raise _device_error(name, out if x.is_cpu else x)
        if x.requires_grad:
            x = x.detach()  # otherwise autograd would record the copy into the slot
        with record_as(name.partition(" ")[0], max(x.nbytes, out.nbytes), self._ranks, x.dtype):
            return self._queue.start(self._plan(kind, name, x, source), x, out, after)

    def _plan(self, kind: type[Plan], name: str, x: Tensor, source: int = 0) -> Plan:
        """Return the plan of a collective; cached by its name, dtype, shape and source."""
        key = (name, x.dtype, x.shape, source)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = kind(self._slots, name, x, source)
        return plan

    def _start_chunked_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Collective:
        """Start an all-reduce in which each rank adds one part and gets the other parts.

        It is a reduce-scatter and an all-gather, slot by slot, while a slot's values are in the
        cache. The elements left over by an even division, fewer than there are ranks, are reduced
        as a whole.
        """
        x_K, out_K = x.view(-1), out.view(-1)
        width = self._layout.slot // x.itemsize // self._size * self._size
        even = x_K.numel() // self._size * self._size
        for begin in range(0, even, width):
            end = min(begin + width, even)
            piece = out_K[begin:end].view(self._size, -1)[self._me]
            name = f"reduce_scatter {_REDUCTIONS[op]}"
            scattered = self._start(ReduceScatter, name, x_K[begin:end], piece)
            last = self._start(AllGather, "all_gather", piece, out_K[begin:end], after=scattered)
        if even < x_K.numel():
            last = self._start(AllReduce, f"all_reduce {_REDUCTIONS[op]}", x_K[even:], out_K[even:])
        return last

    # ------------------------------------------------------------------ messages

    def start_send(self, x: Tensor, to: int, tag: int) -> Message:
        """Start sending `x` to rank `to` of this axis."""
        if not x.is_cpu:
            raise _device_error("send", x)
        x = x.detach()
        with record_as("send", x.nbytes, (self._ranks[self._me], self._ranks[to]), x.dtype):
            return self.messages.start_send(x, to, tag)

    def start_recv(self, out: Tensor, source: int, tag: int) -> Message:
        """Start receiving `out` from rank `source` of this axis."""
        if not out.is_cpu:
            raise _device_error("recv", out)
        with record_as("recv", out.nbytes, (self._ranks[source], self._ranks[self._me]), out.dtype):
            return self.messages.start_recv(out, source, tag)

    # ------------------------------------------------------------------ waiting

    def _await_word(self, word: int, value: int, peer: int, name: str) -> None:
        words = self._words
        for _ in self._spins:
            if words[word] >= value:
                return
        self._wait_until(lambda: bool(words[word] >= value), peer, name)

    def _finish(self, message: Message) -> None:
        self._wait_until(lambda: message.done, message.peer, message.name)

    def _wait_until(self, is_done: Callable[[], bool], peer: int, name: str) -> None:
        """Make progress on messages until `is_done()`, which depends on a peer."""

        def ready() -> bool:
            for link in self._links:
                link.messages.progress()
            return is_done()

        waiting.spin_then_wait(ready, partial(self._check_peer, ready, peer, name), self._waiter)

    def _check_peer(self, ready: Any, peer: int, name: str, seconds: float) -> None:
        """Raise an error if the peer has left, has died or is late."""
        if self._words[self._layout.taken_word(peer) + 1]:
            why = "which has left"
        elif not self._region.is_alive(peer):
            why = "which died"
        elif seconds > self._timeout:
            why = f"which did not come within {self._timeout:g} s"
        else:
            return
        if ready():  # the peer left only after it had finished its part
            return
        raise PeerLostError(
            f"{name} over the shared memory of ranks {list(self._ranks)} waits for rank "
            f"{self._ranks[peer]}, {why} ({self._region.describe(peer)})"
        )


def _device_error(name: str, x: Tensor) -> ValueError:
    return ValueError(
        f"the shared-memory link carries CPU tensors; {name} got one on {x.device}. "
        'Use link="torch" for this axis'
    )
