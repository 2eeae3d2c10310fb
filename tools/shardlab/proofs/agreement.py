"""The check that ranks mean the same collective or message, before the backend sees it.

gloo aborts the process when sizes differ and silently adds the bytes of one dtype to another's;
NCCL hangs. One small all-gather of each rank's intent turns all three into an error that says who
brought what. It costs one more latency a collective, so only a world that checks does it.

Of a message, each end writes into the ranks' store what it sends or expects, looks whether the
other end has done so, and only then starts. Whoever comes second sees the difference and doesn't
start; whoever came first finds it in `wait`. Nobody blocks in the start, so the check adds no
deadlock. `World.join(check=True)` asks for it, by name: who doesn't check needs none of it.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from shardlab.comm.faults import Store
from shardlab.comm.pending import CollectiveError, PeerLostError

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
DIMS = 8  # a tensor with more dimensions is described by its first eight and its element count
WIDTH = DIMS + 5


class Gathering(Protocol):
    """What the check needs of an axis."""

    name: str
    ranks: tuple[int, ...]
    size: int

    def gather_small(self, x: Tensor, out: Tensor) -> None:
        """All-gather with no check of its own."""


def header(x: Tensor, op: int = -1, detail: str = "") -> Tensor:
    """Describe a tensor in `WIDTH` int64: op, detail, dtype, dims, elements, shape."""
    dtype = DTYPES.index(x.dtype) if x.dtype in DTYPES else -1
    shape = list(x.shape[:DIMS]) + [0] * (DIMS - min(DIMS, x.dim()))
    return torch.tensor([op, zlib.crc32(detail.encode()), dtype, x.dim(), x.numel(), *shape])


def demand(axis: Gathering, op: str, x: Tensor, detail: str = "") -> None:
    """Gather every rank's intent; raise on each rank where any two differ.

    Raises:
        CollectiveError: names the collective and what each rank brought.
    """
    mine = header(x, COLLECTIVES.index(op), detail)
    all_of_them = torch.empty(axis.size * WIDTH, dtype=torch.int64)
    axis.gather_small(mine, all_of_them)
    rows = all_of_them.view(axis.size, WIDTH)
    if bool((rows == rows[0]).all()):
        return
    lines = [f"the ranks of the {axis.name} axis {list(axis.ranks)} disagree on what to do:"]
    lines += [f"  rank {r}: {_describe(row)}" for r, row in zip(axis.ranks, rows, strict=True)]
    lines.append("  Every rank must bring the same collective, shape and dtype.")
    raise CollectiveError("\n".join(lines))


def _describe(row: Tensor) -> str:
    op, detail, dtype, dims, elements, *shape = (int(v) for v in row)
    name = str(DTYPES[dtype]).removeprefix("torch.") if dtype >= 0 else "another dtype"
    what = f"{COLLECTIVES[op]} of " if op >= 0 else ""
    extra = f" (option {detail:08x})" if detail else ""
    return f"{what}{name}{shape[:dims] if dims <= DIMS else f'[{elements} elements]'}{extra}"


class ForgettingStore(Store, Protocol):
    """A store that can forget, too."""

    def delete_key(self, key: str) -> bool:
        """Remove a key."""


class Agreement:
    """What a world that checks compares before anything meets the backend.

    Args:
        store: of the ranks.
        timeout: seconds to wait for the other end.
    """

    def __init__(self, store: ForgettingStore, timeout: float) -> None:
        self._store = store
        self._timeout = timeout
        self._count: Counter[tuple[tuple[int, ...], int, int, int]] = Counter()

    def demand(self, axis: Gathering, op: str, x: Tensor, detail: str) -> None:
        """Refuse a collective to which the ranks bring different things; see `demand`."""
        demand(axis, op, x, detail)

    def announce(
        self, axis: str, ranks: Sequence[int], ends: tuple[int, int], tag: int, x: Tensor, *,
        sent: bool,
    ) -> Announcement:  # fmt: skip
        """Announce one end of a message.

        Args:
            axis: its name, for errors.
            ranks: the members of the axis.
            ends: the ranks of sender and receiver.
            tag: of the message.
            x: what is sent or expected.
            sent: which of the two.

        Raises:
            CollectiveError: the other end has announced something else.
        """
        key = (tuple(ranks), *ends, tag)
        number = self._count[key]
        self._count[key] += 1
        source, to = ends
        group = "-".join(map(str, ranks))
        place = f"message/{group}/{source}-{to}/{tag}/{number}"
        announcement = Announcement(self._store, place, axis, ends, tag, sent=sent)
        announcement.begin(x, self._timeout)
        return announcement


class Announcement:
    """One end's word on a message, and the wait for the other's."""

    def __init__(
        self,
        store: ForgettingStore,
        place: str,
        axis: str,
        ends: tuple[int, int],
        tag: int,
        *,
        sent: bool,
    ) -> None:
        self._store = store
        self._keys = (f"{place}/sent", f"{place}/expected")[:: 1 if sent else -1]
        self._axis = axis
        self._ends = ends
        self._tag = tag
        self._sent = sent
        self._mine = ""
        self._seen = False

    def begin(self, x: Tensor, timeout: float) -> None:
        """Write this end's word and compare it with the other's, if that is there."""
        self._mine = f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        self._end = time.monotonic() + timeout
        self._store.set(self._keys[0], self._mine)
        self._look()

    def wait(self) -> None:
        """Wait for the other end's word and compare it.

        Raises:
            CollectiveError: the two differ; names both.
            PeerLostError: it never came.
        """
        pause = 1e-4
        while not self._look():
            if time.monotonic() > self._end:
                raise PeerLostError("the other end never announced the message")
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def _look(self) -> bool:
        if self._seen:
            return True
        other = self._keys[1]
        if not self._store.check([other]):
            return False
        self._seen = True
        theirs = self._store.get(other).decode()
        self._store.delete_key(other)  # only this end reads it
        if theirs != self._mine:
            sent, expected = (self._mine, theirs) if self._sent else (theirs, self._mine)
            source, to = self._ends
            raise CollectiveError(
                f"rank {source} of the {self._axis} axis sends {sent}, "
                f"but the receiver, rank {to}, expects {expected} (tag {self._tag})"
            )
        return True
