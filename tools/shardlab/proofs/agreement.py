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
from typing import Any

import torch
from torch import Tensor

from shardlab.comm.axis import Axis
from shardlab.comm.pending import CollectiveError, PeerLostError

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
DIMS = 8  # a tensor with more dimensions is described by its first eight and its element count


def _described(row: Tensor) -> str:
    op, detail, dtype, dims, elements, *shape = (int(v) for v in row)
    name = str(DTYPES[dtype]).removeprefix("torch.") if dtype >= 0 else "another dtype"
    extra = f" (option {detail:08x})" if detail else ""
    said = shape[:dims] if dims <= DIMS else f"[{elements} elements]"
    return f"{COLLECTIVES[op]} of {name}{said}{extra}"


class Agreement:
    """What a world that checks compares before anything meets the backend.

    Args:
        store: of the ranks.
        timeout: seconds to wait for the other end.
    """

    def __init__(self, store: Any, timeout: float) -> None:
        self._store = store
        self._timeout = timeout
        self._count: Counter[tuple[tuple[int, ...], int, int, int]] = Counter()

    def demand(self, axis: Axis, op: str, x: Tensor, detail: str) -> None:
        """Gather every rank's intent; raise on each rank where any two differ.

        Raises:
            CollectiveError: names the collective and what each rank brought.
        """
        dtype = DTYPES.index(x.dtype) if x.dtype in DTYPES else -1
        shape = list(x.shape[:DIMS]) + [0] * (DIMS - min(DIMS, x.dim()))
        words = (COLLECTIVES.index(op), zlib.crc32(detail.encode()))
        mine = torch.tensor([*words, dtype, x.dim(), x.numel(), *shape])
        rows = torch.empty(axis.size, len(mine), dtype=torch.int64)
        axis.gather_small(mine, rows.view(-1))
        if bool((rows == rows[0]).all()):
            return
        lines = [f"the ranks of the {axis.name} axis {list(axis.ranks)} disagree on what to do:"]
        lines += [f"  rank {r}: {_described(row)}" for r, row in zip(axis.ranks, rows, strict=True)]
        lines.append("  Every rank must bring the same collective, shape and dtype.")
        raise CollectiveError("\n".join(lines))

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
        differs = (
            f"rank {source} of the {axis} axis sends {{}}, but the receiver, rank {to}, expects "
            f"{{}} (tag {tag})"
        )
        word = f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        return Announcement(self._store, place, differs, word, sent=sent, timeout=self._timeout)


class Announcement:
    """One end's word on a message, which is written at once, and the wait for the other's."""

    def __init__(
        self, store: Any, place: str, differs: str, word: str, *, sent: bool, timeout: float
    ) -> None:
        self._store = store
        self._differs = differs
        self._mine = word
        self._sent = sent
        self._end = time.monotonic() + timeout
        self._seen = False
        mine, self._other = (f"{place}/sent", f"{place}/expected")[:: 1 if sent else -1]
        store.set(mine, word)
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
        if not self._store.check([self._other]):
            return False
        self._seen = True
        theirs = self._store.get(self._other).decode()
        self._store.delete_key(self._other)  # only this end reads it
        if theirs != self._mine:
            sent, expected = (self._mine, theirs) if self._sent else (theirs, self._mine)
            raise CollectiveError(self._differs.format(sent, expected))
        return True
