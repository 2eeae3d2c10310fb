"""The shared-memory link: what an axis calls instead of gloo or NCCL.

It carries CPU tensors between processes of one host, with no thread and no socket. Everything
moves on inside the calls: a wait on any collective or message also moves all messages of this
process, on every link of its world, so messages that cross cannot block each other. No dispatcher
sees any of it: the ledger is told what was asked for.

Not for use from several threads at once.
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
from shardlab.links.shared_memory import patience
from shardlab.links.shared_memory.layout import RegionLayout
from shardlab.links.shared_memory.mailbox import Message
from shardlab.links.shared_memory.messages import Messages, Several
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
from shardlab.proofs.ledger import asked

SLOTS = 4 << 20  # bytes of one slot of every rank together: fewer steps than small ones need
WHOLE = 64 << 10  # bytes up to which more than two ranks each add everything
_LOOKS = 400  # at a flag before the patience begins: some 20 µs, a tenth where cores are short
_ORDERED = ("x86_64", "AMD64", "i686", "x86")  # machines that need no fence
_START = 60.0  # seconds at least for all to come: a process that starts takes its time
_PLANS = 1000  # kept at most
_ADDED = {"sum": "sum", "mean": "sum", "max": "max"}  # the axis divides


class SharedMemoryLink:
    """Collectives and messages between ranks of one host.

    `waits_immediately`, whether a wait follows at once, makes no difference here.

    Args:
        store: where the ranks meet (`set`, `get`, `check`); a prefix of it that nobody else uses.
        ranks: their numbers, in order.
        rank: this one's number.
        timeout: seconds until a wait is given up.
        beside: all links of this process, this one among them, whose messages are to move on
            while this one waits; by default this one alone.
        slot: bytes of one step of a rank.

    Raises:
        CollectiveError: a rank is on another host, or does not come.
        OSError: there is no room for the memory.
    """

    device = torch.device("cpu")
    groups_exchanges = False

    def __init__(
        self, store: Store, ranks: Sequence[int], rank: int, *, timeout: float,
        beside: Iterable[SharedMemoryLink] | None = None, slot: int | None = None,
    ) -> None:  # fmt: skip
        self._ranks = tuple(ranks)
        self._size = len(self._ranks)
        self._me = self._ranks.index(rank)
        self._timeout = timeout
        self._looks = range(_LOOKS if self._size <= patience.cores() else _LOOKS // 10)
        self._beside = (self,) if beside is None else beside
        slot = slot or max(64 << 10, SLOTS // self._size // 4096 * 4096)
        self._layout = layout = RegionLayout(self._size, slot)
        patient = max(timeout, _START)
        self._region = region = Region.meet(store, self._ranks, self._me, layout.size, patient)
        self._words = words = region.words
        places = [layout.bell(r) for r in range(self._size)]
        self._bells = bells = patience.Bells(words, region.bytes.data_ptr(), places, self._me)
        fence = None if platform.machine() in _ORDERED else patience.Fence()
        self._slots = Slots(region.bytes, layout, self._me)
        self._plans: dict[Any, Plan] = {}
        self._queue = Queue(
            words, layout, ranks=self._ranks, me=self._me, wait=self._await_word,
            bells=bells, fence=fence,
        )  # fmt: skip
        self.messages = Messages(
            region=region, layout=layout, ranks=self._ranks, me=self._me, bells=bells,
            fence=fence, finish=self._finish,
        )  # fmt: skip
        self._nothing = torch.empty(0, dtype=torch.uint8)

    def close(self) -> None:
        """Tell the peers that this rank has left, and let go of the memory."""
        self._words[self._layout.taken(self._me) + 1] = 1
        self._bells.ring_all()
        self._region.close()

    # ------------------------------------------------------------------ collectives

    def barrier(self) -> None:
        """Return when every rank has come here."""
        self._start(Barrier, "barrier", self._nothing, self._nothing).wait()

    def start_all_reduce(
        self, x: Tensor, out: Tensor, op: str, waits_immediately: bool = False
    ) -> Collective:
        """Start joining every rank's `x` into `out` (which may be `x`); "mean" only adds up."""
        if self._size > 2 and x.nbytes > WHOLE:
            with asked("all_reduce", x.nbytes, self._ranks, x.dtype):
                return self._start_cut_all_reduce(x, out, op)
        return self._start(AllReduce, f"all_reduce {_ADDED[op]}", x, out)

    def start_all_gather(
        self, x: Tensor, out: Tensor, waits_immediately: bool = False
    ) -> Collective:
        """Start setting every rank's `x` side by side in `out`."""
        return self._start(AllGather, "all_gather", x, out)

    def start_reduce_scatter(
        self, x: Tensor, out: Tensor, op: str, waits_immediately: bool = False
    ) -> Collective:
        """Start joining this rank's row of every rank's `x` into `out`; "mean" only adds up."""
        return self._start(ReduceScatter, f"reduce_scatter {_ADDED[op]}", x, out)

    def start_all_to_all(self, x: Tensor, out: Tensor, rows: Rows = None) -> Collective | Several:
        """Start setting this rank's row of every rank's `x` side by side in `out`.

        Uneven pieces go as messages: a slot has equal rows.
        """
        if rows is None:
            return self._start(AllToAll, "all_to_all", x, out)
        to, source = (torch.split(t, [*n]) for t, n in zip((x, out), rows, strict=True))
        with asked("all_to_all", x.nbytes, self._ranks, x.dtype):
            source[self._me].copy_(to[self._me])
            peers = [peer for peer in range(self._size) if peer != self._me]
            works = [self.start_recv(source[p], p, 0) for p in peers if source[p].numel()]
            return Several(works + [self.start_send(to[p], p, 0) for p in peers if to[p].numel()])

    def start_broadcast(self, out: Tensor, source: int) -> Collective:
        """Start copying `out` of the rank at place `source` into every rank's `out`."""
        return self._start(Broadcast, "broadcast", out, out, source=source)

    def _start(
        self, kind: type[Plan], name: str, x: Tensor, out: Tensor, *, source: int = 0,
        after: Collective | None = None,
    ) -> Collective:  # fmt: skip
        if not (x.is_cpu and out.is_cpu):
            raise _not_here(name, out if x.is_cpu else x)
        if x.requires_grad:
            x = x.detach()  # else autograd would record the copy into the slot
        with asked(name.partition(" ")[0], max(x.nbytes, out.nbytes), self._ranks, x.dtype):
            return self._queue.start(self._plan(kind, name, x, source), x, out, after)

    def _plan(self, kind: type[Plan], name: str, x: Tensor, source: int = 0) -> Plan:
        """Return the plan for a collective; made once for each kind, dtype, shape and source."""
        key = (name, x.dtype, x.shape, source)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            plan = self._plans[key] = kind(self._slots, name, x, source)
        return plan

    def _start_cut_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Collective:
        """Start an all-reduce in which each rank adds one part and gets the others'.

        It is a reduce-scatter and an all-gather, a slot at a time while its values are in the
        cache; what the ranks don't divide evenly, fewer elements than there are ranks, goes whole.
        """
        x_K, out_K = x.view(-1), out.view(-1)
        width = self._layout.slot // x.itemsize // self._size * self._size
        even = x_K.numel() // self._size * self._size
        for begin in range(0, even, width):
            end = min(begin + width, even)
            own = out_K[begin:end].view(self._size, -1)[self._me]
            name = f"reduce_scatter {_ADDED[op]}"
            scattered = self._start(ReduceScatter, name, x_K[begin:end], own)
            last = self._start(AllGather, "all_gather", own, out_K[begin:end], after=scattered)
        if even < x_K.numel():
            last = self._start(AllReduce, f"all_reduce {_ADDED[op]}", x_K[even:], out_K[even:])
        return last

    # ------------------------------------------------------------------ messages

    def start_send(self, x: Tensor, to: int, tag: int) -> Message:
        """Start sending `x` to the rank at place `to`."""
        if not x.is_cpu:
            raise _not_here("send", x)
        x = x.detach()
        with asked("send", x.nbytes, (self._ranks[self._me], self._ranks[to]), x.dtype):
            return self.messages.start_send(x, to, tag)

    def start_recv(self, out: Tensor, source: int, tag: int) -> Message:
        """Start receiving `out` from the rank at place `source`."""
        if not out.is_cpu:
            raise _not_here("recv", out)
        with asked("recv", out.nbytes, (self._ranks[source], self._ranks[self._me]), out.dtype):
            return self.messages.start_recv(out, source, tag)

    # ------------------------------------------------------------------ waiting

    def _await_word(self, word: int, value: int, peer: int, name: str) -> None:
        words = self._words
        for _ in self._looks:
            if words[word] >= value:
                return
        self._until(lambda: bool(words[word] >= value), peer, name)

    def _finish(self, message: Message) -> None:
        self._until(lambda: message.done, message.peer, message.name)

    def _until(self, come: Callable[[], bool], peer: int, name: str) -> None:
        """Move messages on until what is awaited of a peer has come."""

        def ready() -> bool:
            for link in self._beside:
                link.messages.move()
            return come()

        patience.until(ready, partial(self._watch, ready, peer, name), self._bells)

    def _watch(self, ready: Any, peer: int, name: str, waited: float) -> None:
        """Give up on a peer that is gone, or late."""
        if self._words[self._layout.taken(peer) + 1]:
            why = "which has left"
        elif not self._region.alive(peer):
            why = "which died"
        elif waited > self._timeout:
            why = f"which did not come within {self._timeout:g} s"
        else:
            return
        if ready():  # it came, and left only then
            return
        raise PeerLostError(
            f"{name} over the shared memory of ranks {list(self._ranks)} waits for rank "
            f"{self._ranks[peer]}, {why} ({self._region.describe(peer)})"
        )


def _not_here(name: str, x: Tensor) -> ValueError:
    return ValueError(
        f"the shared-memory link carries CPU tensors; {name} got one on {x.device}. "
        'Use link="torch" for this axis'
    )
