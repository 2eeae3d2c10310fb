"""The shared-memory link: what an axis calls instead of gloo or NCCL.

It carries CPU tensors between processes of one host, with no thread and no socket. Everything
moves on inside the calls: a wait on any collective or message also moves all messages of this
process, on every link of its world, so messages that cross cannot block each other.

Not for use from several threads at once.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from shardlab.faults import CollectiveError, Store
from shardlab.shared_memory import patience
from shardlab.shared_memory.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Barrier,
    Broadcast,
    Collective,
    ReduceScatter,
)
from shardlab.shared_memory.layout import Layout
from shardlab.shared_memory.mailbox import Message
from shardlab.shared_memory.messages import Messages, Sent
from shardlab.shared_memory.queue import Queue
from shardlab.shared_memory.region import Region
from shardlab.shared_memory.signature import stem
from shardlab.shared_memory.slots import Slots, add, maximum

SLOT = 512 << 10  # bytes: the slots of two ranks stay in a cache while they are read
WHOLE = 64 << 10  # bytes up to which more than two ranks each add everything
_LOOKS = 50  # at a flag before the patience begins: a few microseconds
_ORDERED = ("x86_64", "AMD64", "i686", "x86")  # machines that need no fence
_JOIN = {"sum": add, "mean": add, "max": maximum}
_NAME = {"sum": "sum", "mean": "sum", "max": "max"}


class SharedMemoryLink:
    """Collectives and messages between ranks of one host.

    Args:
        store: where the ranks meet (`set`, `get`, `check`); a prefix of it that nobody else uses.
        ranks: their numbers, in order.
        rank: this one's number.
        timeout: seconds until a wait is given up.
        beside: the other links of this process, whose messages move on while this one waits.
        slot: bytes that a rank can put in one step.

    Raises:
        CollectiveError: a rank is on another host, or does not come.
        OSError: there is no room for the memory.
    """

    def __init__(
        self, store: Store, ranks: Sequence[int], rank: int, *, timeout: float,
        beside: Iterable[SharedMemoryLink] = (), slot: int = SLOT,
    ) -> None:  # fmt: skip
        self._ranks = tuple(ranks)
        self._size = len(self._ranks)
        self._me = self._ranks.index(rank)
        self._timeout = timeout
        self._beside = beside
        self._layout = layout = Layout(self._size, slot)
        self._region = region = Region.meet(store, self._ranks, self._me, layout.size, timeout)
        self._words = region.words
        fence = None if platform.machine() in _ORDERED else patience.Fence()
        slots = Slots(region.bytes, layout, self._me)
        self._queue = Queue(region.words, layout, slots, self._ranks, self._await_word, fence)
        self.messages = Messages(region, layout, self._ranks, self._me, fence)
        self._stems: dict[tuple[str, torch.dtype, int], int] = {}

    def close(self) -> None:
        """Tell the peers that this rank has left, and let go of the memory."""
        self._words[self._layout.taken(self._me) + 1] = 1
        self._region.close()

    # ------------------------------------------------------------------ collectives

    def barrier(self) -> None:
        """Return when every rank has come here."""
        empty = torch.empty(0)
        self._start(Barrier, "barrier", empty, empty, 0, 1).wait()

    def start_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Collective:
        """Start joining every rank's `x` into `out` (which may be `x`); "mean" only adds up."""
        if self._size > 2 and x.nbytes > WHOLE:
            return self._start_cut_all_reduce(x, out, op)
        name = "all_reduce " + _NAME[op]
        return self._start(AllReduce, name, x, out, x.numel(), self._width(x), join=_JOIN[op])

    def start_all_gather(self, x: Tensor, out: Tensor) -> Collective:
        """Start setting every rank's `x` side by side in `out`."""
        return self._start(AllGather, "all_gather", x, out, x.numel(), self._width(x))

    def start_reduce_scatter(self, x: Tensor, out: Tensor, op: str) -> Collective:
        """Start joining this rank's row of every rank's `x` into `out`; "mean" only adds up."""
        name, width = "reduce_scatter " + _NAME[op], self._width(x) // self._size
        return self._start(ReduceScatter, name, x, out, out.numel(), width, join=_JOIN[op])

    def start_all_to_all(self, x: Tensor, out: Tensor) -> Collective:
        """Start setting this rank's row of every rank's `x` side by side in `out`."""
        columns, width = x.numel() // self._size, self._width(x) // self._size
        return self._start(AllToAll, "all_to_all", x, out, columns, width)

    def start_broadcast(self, out: Tensor, source: int) -> Collective:
        """Start copying `out` of the rank at place `source` into every rank's `out`."""
        awaits = [] if source == self._me else [source]
        columns, width = out.numel(), self._width(out)
        return self._start(
            Broadcast, "broadcast", out, out, columns, width, source=source, awaits=awaits
        )

    def _start(
        self, kind: type[Collective], name: str, x: Tensor, out: Tensor, columns: int, width: int,
        **more: Any,
    ) -> Collective:  # fmt: skip
        """Start a collective of `columns` elements a row, `width` of them in a step."""
        if not (x.is_cpu and out.is_cpu):
            raise _not_here(name, out if x.is_cpu else x)
        if x.requires_grad:
            x = x.detach()  # else autograd would record the copy into the slot
        key = (name, x.dtype, more.get("source", 0))
        begin = self._stems.get(key)
        if begin is None:
            begin = self._stems[key] = stem(*key)
        collective = kind(self._queue, x, out, columns, width, begin + x.numel())
        for attribute, value in more.items():
            setattr(collective, attribute, value)
        return self._queue.start(collective)

    def _start_cut_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Collective:
        """Start an all-reduce in which each rank adds one part and gets the others': as a
        reduce-scatter and an all-gather, a slot at a time while the values are in the cache.
        """
        x, whole = x.view(-1), out.view(-1)
        width = self._width(x) // self._size * self._size
        even = x.numel() // self._size * self._size
        name = "reduce_scatter " + _NAME[op]
        for begin in range(0, even, width):
            end = min(begin + width, even)
            part = (end - begin) // self._size
            own = whole[begin:end].view(self._size, part)[self._me]
            scattered = self._start(
                ReduceScatter, name, x[begin:end], own, part, part, join=_JOIN[op]
            )
            last = self._start(
                AllGather, "all_gather", own, whole[begin:end], part, part, after=scattered
            )
        if even < x.numel():
            name, rest = "all_reduce " + _NAME[op], x.numel() - even
            last = self._start(AllReduce, name, x[even:], whole[even:], rest, rest, join=_JOIN[op])
        return last

    def _width(self, x: Tensor) -> int:
        return self._layout.slot // x.itemsize

    # ------------------------------------------------------------------ messages

    def start_send(self, x: Tensor, to: int, tag: int) -> Sent:
        """Start sending `x` to the rank at place `to`."""
        if not x.is_cpu:
            raise _not_here("send", x)
        x = x.detach()
        return Sent(self.messages.start_send(x, to, tag), "send", self._finish)

    def start_recv(self, out: Tensor, source: int, tag: int) -> Sent:
        """Start receiving `out` from the rank at place `source`."""
        if not out.is_cpu:
            raise _not_here("recv", out)
        return Sent(self.messages.start_recv(out, source, tag), "recv", self._finish)

    # ------------------------------------------------------------------ waiting

    def _await_word(self, word: int, value: int, peer: int, name: str) -> None:
        words = self._words
        for _ in range(_LOOKS):
            if words[word] >= value:
                return

        def ready() -> bool:
            self._move_messages()
            return bool(words[word] >= value)

        patience.until(ready, lambda waited: self._watch(ready, peer, name, waited))

    def _finish(self, message: Message, name: str) -> None:
        def ready() -> bool:
            self._move_messages()
            return message.done

        patience.until(ready, lambda waited: self._watch(ready, message.peer, name, waited))

    def _move_messages(self) -> None:
        self.messages.move()
        for link in self._beside:
            link.messages.move()

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
        raise CollectiveError(
            f"rank {self._ranks[self._me]}: {name} over the shared memory of ranks "
            f"{list(self._ranks)} waits for rank {self._ranks[peer]}, {why} "
            f"({self._region.describe(peer)})"
        )


def _not_here(name: str, x: Tensor) -> ValueError:
    return ValueError(
        f"the shared-memory link carries CPU tensors; {name} got one on {x.device}. "
        'Use link="torch" for this axis'
    )
