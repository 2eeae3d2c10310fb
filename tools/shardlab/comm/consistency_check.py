"""The check that all ranks call the same collective or message, before the backend starts it.

If sizes differ, gloo aborts the process. If dtypes differ, it adds the bytes of one dtype to those
of the other without an error. NCCL hangs. A small all-gather of each rank's call turns all three
cases into an error that lists the ranks' calls. It costs one more latency a collective, so only
`World.join(check=True)` does it.

For a message, each end writes into the ranks' store what it sends or expects, reads what the other
end wrote, and only then starts. The later end sees a difference and doesn't start; the earlier end
sees it in `wait`. No end blocks in its start, so the check adds no deadlock. A world that doesn't
check never imports this module.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shardlab.comm.pending import CollectiveError, PeerLostError

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
DIMS = 8  # of a tensor with more dimensions, the first eight and the element count are compared


def _describe_row(row: Tensor) -> str:
    op, detail, dtype, dims, elements, *shape = (int(v) for v in row)
    name = str(DTYPES[dtype]).removeprefix("torch.") if dtype >= 0 else "another dtype"
    extra = f" (option {detail:08x})" if detail else ""
    shape_text = shape[:dims] if dims <= DIMS else f"[{elements} elements]"
    return f"{COLLECTIVES[op]} of {name}{shape_text}{extra}"


class ConsistencyCheck:
    """Compares the ranks' collectives and messages before they start.

    Args:
        store: the ranks' key-value store.
        timeout: seconds to wait for the other end of a message.
    """

    def __init__(self, store: Any, timeout: float) -> None:
        self._store = store
        self._timeout = timeout
        self._count: Counter[tuple[tuple[int, ...], int, int, int]] = Counter()

    def check(
        self, op: str, x: Tensor, detail: str, *, place: str, ranks: Sequence[int],
        gather: Callable[[Tensor, Tensor], None],
    ) -> None:  # fmt: skip
        """Gather every rank's call; raise on each rank if any two differ.

        Args:
            op: the collective.
            x: this rank's input.
            detail: the reduction or the broadcast's source.
            place: the name of the axis and its ranks, for errors.
            ranks: the members of the axis.
            gather: the axis's all-gather of a few numbers.

        Raises:
            CollectiveError: lists each rank's call.
        """
        dtype = DTYPES.index(x.dtype) if x.dtype in DTYPES else -1
        shape = list(x.shape[:DIMS]) + [0] * (DIMS - min(DIMS, x.dim()))
        words = (COLLECTIVES.index(op), zlib.crc32(detail.encode()))
        local = torch.tensor([*words, dtype, x.dim(), x.numel(), *shape], device="cpu")
        rows = torch.empty(len(ranks), len(local), dtype=torch.int64, device="cpu")
        gather(local, rows.view(-1))
        if bool((rows == rows[0]).all()):
            return
        lines = [f"the ranks of {place} disagree on what to do:"]
        lines += [f"  rank {r}: {_describe_row(row)}" for r, row in zip(ranks, rows, strict=True)]
        lines.append("  Every rank must bring the same collective, shape and dtype.")
        raise CollectiveError("\n".join(lines))

    def announce(
        self, axis: str, ranks: Sequence[int], ends: tuple[int, int], tag: int, x: Tensor, *,
        is_send: bool,
    ) -> Announcement:  # fmt: skip
        """Announce one end of a message.

        Args:
            axis: the axis's name, for errors.
            ranks: the members of the axis.
            ends: the ranks of sender and receiver.
            tag: the message's tag.
            x: the tensor that is sent or that will be filled.
            is_send: whether this end is the sender.

        Raises:
            CollectiveError: the other end has announced something else.
        """
        key = (tuple(ranks), *ends, tag)
        number = self._count[key]
        self._count[key] += 1
        source, to = ends
        group = "-".join(map(str, ranks))
        place = f"message/{group}/{source}-{to}/{tag}/{number}"
        template = (
            f"rank {source} of the {axis} axis sends {{}}, but the receiver, rank {to}, expects "
            f"{{}} (tag {tag})"
        )
        description = f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        return Announcement(
            self._store, place, template, description, is_send=is_send, timeout=self._timeout
        )


class Announcement:
    """One end's description of a message, written at once, and the comparison with the other's."""

    def __init__(
        self,
        store: Any,
        place: str,
        template: str,
        description: str,
        *,
        is_send: bool,
        timeout: float,
    ) -> None:
        self._store = store
        self._template = template
        self._description = description
        self._is_send = is_send
        self._end = time.monotonic() + timeout
        self._compared = False
        local_key, self._peer_key = (f"{place}/sent", f"{place}/expected")[:: 1 if is_send else -1]
        store.set(local_key, description)
        self._poll()

    def wait(self) -> None:
        """Wait for the other end's description and compare it.

        Raises:
            CollectiveError: the two differ; the message has both.
            PeerLostError: the other end wrote none in time.
        """
        pause = 1e-4
        while not self._poll():
            if time.monotonic() > self._end:
                raise PeerLostError("the other end never announced the message")
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def _poll(self) -> bool:
        if self._compared:
            return True
        if not self._store.check([self._peer_key]):
            return False
        self._compared = True
        peer_description = self._store.get(self._peer_key).decode()
        self._store.delete_key(self._peer_key)  # only this end reads it
        if peer_description != self._description:
            sent_description, expected = (
                (self._description, peer_description)
                if self._is_send
                else (peer_description, self._description)
            )
            raise CollectiveError(self._template.format(sent_description, expected))
        return True
