"""The link "shared-memory": ranks of one host communicate through memory that all of them map.

It carries CPU tensors, without threads or sockets. All progress happens inside calls: a start and a
wait run this process's transfers as far as they go, on every link of its world, so transfers that
cross cannot block each other. A wait spins, then yields the core, then sleeps for short times until
a peer has died, has left or is late. PyTorch's dispatcher doesn't see these collectives; the link
reports them to tracers. It must not be used from several threads at once.

    mapped_file.py  the memory: a file that all ranks map, and how they find it
    transfers.py    the protocol: write, publish a sequence number, wait for it; and messages
    slots.py        the collectives

It is there for lab 02, which measures a collective without sockets, and for tests with more ranks
than cores. It can be deleted when they use another link.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shardlab.comm.host import count_cores
from shardlab.comm.pending import PeerLostError, Rows, Work
from shardlab.comm.tracing import record_as
from shardlab.comm.transport import Transport
from shardlab.links.mapped_file import Region
from shardlab.links.slots import Slots
from shardlab.links.transfers import Inbox, Lane, Outbox, Receive, Steps, Transfer

SLOTS_BYTES = 4 << 20  # of one slot of all ranks; larger slots need fewer steps
_SPINS = 400  # reads of a counter before the rank yields: about 20 µs; a tenth if cores are few
_YIELD_SECONDS = 1e-3  # a rank yields its core so long before it sleeps
_SLEEP_SECONDS = 5e-5
_CHECK_SECONDS = 5e-3  # between two checks that the peer is alive
_RENDEZVOUS_SECONDS = 60.0  # at least: a process may take that long to start
_REDUCTIONS = {"sum": "sum", "mean": "sum", "max": "max"}  # the axis divides


class _Several(NamedTuple):
    """Several works with one `wait`."""

    works: Sequence[Work]

    def wait(self) -> None:
        for work in self.works:
            work.wait()


class SharedMemoryLink(Transport):
    """Collectives and messages between ranks of one host.

    Args:
        store: the ranks' key-value store (`set`, `get`, `check`, `add`), with a prefix of its own.
        ranks: the members' global ranks, in order.
        rank: this rank's global number.
        timeout: seconds after which a wait raises an error.
        links: all links of this process, including this one: while this link waits, it makes
            progress on all of them. By default this link only.
        slot: bytes of a rank's slot, and so of one step of a collective.

    Raises:
        CollectiveError: a rank is on another host, or does not join in time.
        OSError: the shared memory doesn't fit.
    """

    device = torch.device("cpu")

    def __init__(
        self, store: Any, ranks: Sequence[int], rank: int, *, timeout: float,
        links: Iterable[Any] | None = None, slot: int | None = None,
    ) -> None:  # fmt: skip
        self._ranks = tuple(ranks)
        self._size = len(self._ranks)
        self._me = self._ranks.index(rank)
        self._timeout = timeout
        self._links = (self,) if links is None else links
        self._slot = slot or max(64 << 10, SLOTS_BYTES // self._size // 4096 * 4096)
        self._region = region = Region(
            store, self._ranks, self._me, slot=self._slot, timeout=max(timeout, _RENDEZVOUS_SECONDS)
        )
        self._words = region.words
        self._spins = range(_SPINS if self._size <= count_cores() else _SPINS // 10)
        self._slots = Slots(region, self._ranks, self._me)
        self._outboxes: dict[int, Outbox] = {}
        self._inboxes: dict[int, Inbox] = {}
        self.lanes: list[Lane] = [self._slots]

    def close(self) -> None:
        """Tell the peers that this rank has left, and release the memory."""
        self._region.close()

    # ------------------------------------------------------------------ collectives

    def barrier(self) -> None:
        """Return when every rank has called this."""
        self._run("barrier", self._slots, self._slots.barrier()).wait()

    def start_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Work:
        """Start an all-reduce of `x` into `out`, which may be `x`; "mean" only adds."""
        steps = self._slots.all_reduce(_prepare("all_reduce", x), out, _REDUCTIONS[op])
        return self._collective("all_reduce", steps, x, x.nbytes)

    def start_all_gather(self, x: Tensor, out: Tensor) -> Work:
        """Start an all-gather of `x` into `out`."""
        steps = self._slots.all_gather(_prepare("all_gather", x), out)
        return self._collective("all_gather", steps, x, out.nbytes)

    def start_reduce_scatter(self, x: Tensor, out: Tensor, op: str) -> Work:
        """Start a reduce-scatter of `x` into `out`; "mean" only adds."""
        steps = self._slots.reduce_scatter(_prepare("reduce_scatter", x), out, _REDUCTIONS[op])
        return self._collective("reduce_scatter", steps, x, x.nbytes)

    def start_all_to_all(self, x: Tensor, out: Tensor, rows: Rows = None) -> Work:
        """Start an all-to-all of `x` into `out`; uneven pieces are sent as messages."""
        x = _prepare("all_to_all", x)
        if rows is None:
            return self._collective("all_to_all", self._slots.all_to_all(x, out), x, x.nbytes)
        to, source = (torch.split(t, [*n]) for t, n in zip((x, out), rows, strict=True))
        source[self._me].copy_(to[self._me])
        peers = [peer for peer in range(self._size) if peer != self._me]
        with record_as("all_to_all", x.nbytes, self._ranks, x.dtype):
            works = [self.start_recv(source[p], p, 0) for p in peers if source[p].numel()]
            works += [self.start_send(to[p], p, 0) for p in peers if to[p].numel()]
            return _Several(works)

    def start_broadcast(self, out: Tensor, source: int) -> Work:
        """Start a broadcast of the `out` of rank `source` of this axis, in place."""
        steps = self._slots.broadcast(_prepare("broadcast", out), source)
        return self._collective("broadcast", steps, out, out.nbytes)

    def _collective(self, name: str, steps: Steps, x: Tensor, payload: int) -> Transfer:
        with record_as(name, payload, self._ranks, x.dtype):
            return self._run(name, self._slots, steps)

    # ------------------------------------------------------------------ messages

    def start_send(self, x: Tensor, to: int, tag: int) -> Work:
        """Start sending `x` to rank `to` of this axis."""
        if to not in self._outboxes:
            self._outboxes[to] = Outbox(self._region, self._me, to)
            self.lanes.append(self._outboxes[to])
        steps = self._outboxes[to].steps(_prepare("send", x), tag)
        with record_as("send", x.nbytes, (self._ranks[self._me], self._ranks[to]), x.dtype):
            return self._run("send", self._outboxes[to], steps)

    def start_recv(self, out: Tensor, source: int, tag: int) -> Work:
        """Start receiving `out` from rank `source` of this axis."""
        if source not in self._inboxes:
            ends = (self._ranks[source], self._ranks[self._me])
            self._inboxes[source] = Inbox(self._region, self._me, source, ends)
            self.lanes.append(self._inboxes[source])
        out = _prepare("recv", out)
        receive = Receive(self._inboxes[source], out, tag, self._finish)
        with record_as("recv", out.nbytes, (self._ranks[source], self._ranks[self._me]), out.dtype):
            self._inboxes[source].receive(receive)
        return receive

    # ------------------------------------------------------------------ waiting

    def _run(self, name: str, lane: Lane, steps: Steps) -> Transfer:
        transfer = Transfer(name, lane, steps, self._finish)
        lane.add(transfer)
        return transfer

    def _finish(self, transfer: Transfer) -> None:
        lane, words = transfer.lane, self._words
        while not transfer.done:
            if lane.error is not None:
                raise lane.error
            for _ in self._spins:
                if words[lane.word] >= lane.value:
                    break
            else:
                self._wait(lane, transfer.name)
            lane.advance()

    def _wait(self, lane: Lane, name: str) -> None:
        """Wait for the peer that `lane` waits for; run all transfers meanwhile."""
        words, word, value = self._words, lane.word, lane.value
        begin = now = time.monotonic()
        next_check = begin + _CHECK_SECONDS
        while (lane.word, lane.value) == (word, value) and words[word] < value:
            for link in self._links:
                for any_lane in link.lanes:
                    any_lane.advance()
            if now - begin < _YIELD_SECONDS:
                os.sched_yield()
            else:
                time.sleep(_SLEEP_SECONDS)
            now = time.monotonic()
            if now >= next_check:
                self._check_peer(lane, name, now - begin)
                next_check = now + _CHECK_SECONDS

    def _check_peer(self, lane: Lane, name: str, seconds: float) -> None:
        """Raise an error if the peer has left, has died or is late."""
        peer, word, value = lane.peer, lane.word, lane.value
        if self._region.has_left(peer):
            why = "which has left"
        elif not self._region.is_alive(peer):
            why = "which died"
        elif seconds > self._timeout:
            why = f"which did not come within {self._timeout:g} s"
        else:
            return
        if self._words[word] < value:  # else it left only after it had finished its part
            raise PeerLostError(
                f"{name} over the shared memory of ranks {list(self._ranks)} waits for rank "
                f"{self._ranks[peer]}, {why} ({self._region.describe(peer)})"
            )


def _prepare(name: str, x: Tensor) -> Tensor:
    """Refuse a tensor of another device; keep autograd from recording copies into slots."""
    if not x.is_cpu:
        raise ValueError(
            f"the shared-memory link carries CPU tensors; {name} got one on {x.device}. "
            'Use link="torch" for this axis'
        )
    return x.detach() if x.requires_grad else x
