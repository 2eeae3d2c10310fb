"""Transfers, the protocol that they follow, and the mailboxes of messages between two ranks.

A writer copies data into a slot, then raises a counter of its own in the shared memory. A reader
waits until the counter has the number that it needs, reads, and raises a counter of its own, after
which the writer may use the slot again. A collective has DEPTH slots a rank, which all ranks read
(slots.py). A message has the CELLS of a mailbox, which one rank reads. Large tensors go in pieces.

Nothing runs in the background. A transfer (a collective or one end of a message) is a generator
that copies as far as it can and yields the counter that it waits for. A lane runs transfers one
after another.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from shardlab.comm.consistency_check import DTYPES
from shardlab.comm.pending import CollectiveError
from shardlab.links.mapped_file import CELLS, HEADER, Region

Steps = Iterator[tuple[int, int, int]]
"""What a transfer yields: (peer, word, value). It goes on once the peer's word has the value."""
Finish = Callable[["Transfer"], None]

COLLECTIVES = (
    "barrier", "all_reduce sum", "all_reduce max", "all_gather", "reduce_scatter sum",
    "reduce_scatter max", "all_to_all", "broadcast", "message",
)  # fmt: skip
_NUMBER = {dtype: number for number, dtype in enumerate(DTYPES)}
_ELEMENTS = 44  # bits; above them 6 for the dtype, 8 for the source, 4 for the collective


@functools.lru_cache
def encode(collective: str, dtype: torch.dtype, source: int = 0) -> int:
    """Return the signature of an empty tensor in one number; add the number of elements to it.

    A signature is written next to each counter. A rank that calls another collective, or brings
    another dtype or length, is therefore named before its bytes are read.
    """
    kind = COLLECTIVES.index(collective)
    return ((kind << 8 | source & 255) << 6 | _NUMBER.get(dtype, len(DTYPES))) << _ELEMENTS


def describe(signature: int) -> str:
    """Return a signature in words, for an error message."""
    elements = signature & (1 << _ELEMENTS) - 1
    number, source = signature >> _ELEMENTS & 63, signature >> _ELEMENTS + 6 & 255
    name = COLLECTIVES[signature >> _ELEMENTS + 14]
    if name == "barrier":
        return name
    dtype = str(DTYPES[number]).removeprefix("torch.") if number < len(DTYPES) else "another dtype"
    origin = f" from its rank {source}" if name == "broadcast" else ""
    return f"{name}{origin} of {elements} × {dtype}"


_lock = threading.Lock()
_lock.acquire()


def fence() -> None:
    """Order this process's earlier reads and writes before its later ones.

    x86-64 keeps the order of data and counters by itself. Arm needs a fence in between, and Python
    has none. Releasing a lock and acquiring it again is one.
    """
    _lock.release()
    _lock.acquire()


class Transfer:
    """A collective, or one end of a message: its lane runs `steps`, `finish` waits for `done`."""

    def __init__(self, name: str, lane: Lane, steps: Steps, finish: Finish) -> None:
        self.name, self.lane, self.steps, self._finish = name, lane, steps, finish
        self.done = False

    def wait(self) -> None:
        """Block until the transfer is done; idempotent."""
        if not self.done:
            self._finish(self)


class Lane:
    """Transfers that run one after another.

    Attributes:
        queue: the transfers that are not done.
        peer, word, value: what the first of them waits for.
        error: what ended the lane; no later transfer of it can succeed.
    """

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self.queue: deque[Transfer] = deque()
        self.peer, self.word, self.value = 0, 0, -1
        self.error: BaseException | None = None

    def add(self, transfer: Transfer) -> None:
        """Queue a transfer, and run it as far as it goes."""
        self.queue.append(transfer)
        self.advance()

    def advance(self) -> None:
        """Run the transfers as far as they go without waiting; keeps an error in `error`."""
        try:
            while self.queue and self.error is None and self.words[self.word] >= self.value:
                self.run()
        except BaseException as error:
            self.error, self.value = error, -1
            if not isinstance(error, Exception):
                raise

    def run(self) -> None:
        """Run the first transfer to its next wait, or to its end."""
        try:
            self.peer, self.word, self.value = next(self.queue[0].steps)
        except StopIteration:
            self.value = -1
            self.queue.popleft().done = True


class Outbox(Lane):
    """The messages from this rank to one peer, which fill the cells in the order of their start.

    A send is done once all of it is in cells, a long one as its receiver empties them.
    """

    def __init__(self, region: Region, me: int, peer: int) -> None:
        super().__init__(region.words)
        self._receiver = peer
        self._cells = region.cells[me, peer].unbind()
        self._words = region.sent_word(me, peer), region.received_word(me, peer)
        self._sent = 0

    def steps(self, x: Tensor, tag: int) -> Steps:
        """Copy the message into cells."""
        words, (sent, received) = self.words, self._words
        data, signature = x.view(-1).view(torch.uint8), encode("message", x.dtype) + x.numel()
        size = self._cells[0].numel()
        for begin in range(0, max(1, data.numel()), size):
            yield self._receiver, received, self._sent - CELLS + 1
            cell = self._sent % CELLS
            part = data[begin : begin + size]
            self._cells[cell][: part.numel()].copy_(part)
            header = sent + 1 + cell * HEADER
            words[header], words[header + 1], words[header + 2] = tag, signature, data.numel()
            fence()
            self._sent += 1
            words[sent] = self._sent


class Receive(Transfer):
    """The receiving end of a message, without steps; `data` are the bytes of its tensor."""

    def __init__(self, lane: Lane, out: Tensor, tag: int, finish: Finish) -> None:
        super().__init__("recv", lane, iter(()), finish)
        self.data, self.tag = out.view(-1).view(torch.uint8), tag
        self.signature = encode("message", out.dtype) + out.numel()


class _Arrival:
    """A message whose cells arrive: into a receive's tensor, or into a buffer without one."""

    def __init__(self, tag: int, signature: int, size: int, receive: Receive | None) -> None:
        self.tag, self.signature, self.receive = tag, signature, receive
        self.buffered = receive is None
        self.data = receive.data if receive else torch.empty(size, dtype=torch.uint8)
        self.rest = self.data


class Inbox(Lane):
    """The messages from one peer to this rank; `queue` has the receives without a buffer.

    A receive takes the first message with its tag. Messages with other tags that arrive before it
    go into buffers. A message stays in its cells while this rank has no receive at all, so it holds
    up its sender instead of filling this rank's memory.
    """

    def __init__(self, region: Region, me: int, peer: int, ends: tuple[int, int]) -> None:
        super().__init__(region.words)
        self._ends = ends  # global ranks of the sender and of this rank
        self._cells = region.cells[peer, me].unbind()
        self._received_word = region.received_word(peer, me)
        self._received = 0
        self._incoming: _Arrival | None = None
        self._unexpected: list[_Arrival] = []
        self.peer, self.word, self.value = peer, region.sent_word(peer, me), 1

    def receive(self, receive: Receive) -> None:
        """Queue a receive, or give it a message that arrived before."""
        for arrival in self._unexpected:
            if arrival.tag == receive.tag:
                self._check(arrival.signature, receive)
                self._unexpected.remove(arrival)
                arrival.receive = receive
                self._complete(arrival)
                return
        self.add(receive)

    def run(self) -> None:
        """Empty one cell."""
        words, sent = self.words, self.word
        fence()
        cell = self._received % CELLS
        if self._incoming is None:
            header = sent + 1 + cell * HEADER
            self._incoming = self._begin(*words[header : header + HEADER])
        arrival, size = self._incoming, self._cells[0].numel()
        part = arrival.rest[:size]
        part.copy_(self._cells[cell][: part.numel()])
        fence()
        self._received += 1
        words[self._received_word] = self._received
        self.value = self._received + 1
        arrival.rest = arrival.rest[size:]
        if arrival.rest.numel() == 0:
            self._incoming = None
            self._complete(arrival)

    def _begin(self, tag: int, signature: int, size: int) -> _Arrival:
        """Return a message's first receive, or a buffer for it if no receive has its tag."""
        for receive in self.queue:
            if isinstance(receive, Receive) and receive.tag == tag:
                self._check(signature, receive)
                return _Arrival(tag, signature, size, receive)
        self._unexpected.append(_Arrival(tag, signature, size, None))
        return self._unexpected[-1]

    def _complete(self, arrival: _Arrival) -> None:
        """Mark a receive as done if all bytes have arrived."""
        if arrival.receive is None or arrival.rest.numel():
            return
        if arrival.buffered:
            arrival.receive.data.copy_(arrival.data)
        else:
            self.queue.remove(arrival.receive)
        arrival.receive.done = True

    def _check(self, signature: int, receive: Receive) -> None:
        if signature != receive.signature:
            raise CollectiveError(
                f"rank {self._ends[0]} sends a {describe(signature)} with tag {receive.tag}, but "
                f"rank {self._ends[1]} receives a {describe(receive.signature)}"
            )
