"""The default link: torch.distributed's own collectives, gloo between CPUs, NCCL between GPUs.

The other links are in shardlab/links, chosen by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor

from shardlab.comm.pending import Rows, Work

# torch 2.13 calls *_single what older versions have under the longer names.
ALL_GATHER = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_OPS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class TorchLink:
    """The collectives of one process group; "mean" adds, the axis divides.

    Args:
        group: torch's process group.
        backend: "gloo", "nccl" or "fake".
        device: the device of tensors that the backend can send.
        timeout: seconds that a message may take on gloo, which ignores the group's timeout there.

    Attributes:
        groups_exchanges: whether sends and receives that cross must be started as one group.
    """

    def __init__(self, group: Any, backend: str, device: torch.device, timeout: float) -> None:
        self.group = group
        self.device = device
        self.groups_exchanges = backend == "nccl"
        self._gloo = backend == "gloo"
        self._timeout = timedelta(seconds=timeout)

    def start_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Work:
        """All-reduce contiguous `x` into `out`, which may be `x`."""
        if out is not x:
            out.copy_(x)
        return cast("Work", dist.all_reduce(out, _OPS[op], self.group, async_op=True))

    def start_all_gather(self, x: Tensor, out: Tensor) -> Work:
        """All-gather contiguous `x` into `out`."""
        return cast("Work", ALL_GATHER(out, x, self.group, async_op=True))

    def start_reduce_scatter(self, x: Tensor, out: Tensor, op: str) -> Work:
        """Reduce-scatter contiguous `x` into `out`."""
        return cast("Work", REDUCE_SCATTER(out, x, _OPS[op], self.group, async_op=True))

    def start_all_to_all(self, x: Tensor, out: Tensor, rows: Rows = None) -> Work:
        """Exchange pieces of dim 0: equal ones, or as many rows to and from each rank as given."""
        to, source = rows or (None, None)
        return cast("Work", dist.all_to_all_single(out, x, source, to, self.group, async_op=True))

    def start_broadcast(self, out: Tensor, source: int) -> Work:
        """Broadcast `out` of rank `source`, in place."""
        return cast("Work", dist.broadcast(out, group=self.group, group_src=source, async_op=True))

    def start_send(self, x: Tensor, to: int, tag: int) -> Work:
        """Send contiguous `x`."""
        return self._message(dist.isend(x, group=self.group, group_dst=to, tag=tag))

    def start_recv(self, out: Tensor, source: int, tag: int) -> Work:
        """Receive into contiguous `out`."""
        return self._message(dist.irecv(out, group=self.group, group_src=source, tag=tag))

    def _message(self, work: Any) -> Work:
        return _Timed(work, self._timeout) if self._gloo else work

    def start_grouped(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]]
    ) -> list[Work]:
        """Start sends and receives that may cross as one NCCL group; return one work for each."""
        ends = [(dist.isend, *pair) for pair in sends] + [(dist.irecv, *pair) for pair in receives]
        operations = [dist.P2POp(to, x, group=self.group, group_peer=peer) for to, x, peer in ends]
        if not operations:
            return []
        works = dist.batch_isend_irecv(operations)
        if len(works) == 1:  # a backend that coalesces returns one work for the whole batch
            works = works * len(operations)
        return works  # type: ignore[return-value]

    def barrier(self) -> None:
        """Wait for every rank."""
        dist.barrier(self.group)

    def close(self) -> None:
        """Drop the reference to the group, which the world destroys.

        The group's threads end with its last reference, and a model holds its axes. A thread that
        still releases a tensor while the interpreter ends would abort the process.
        """
        self.group = None


class _Timed(NamedTuple):
    """A work whose wait has a timeout."""

    work: Any
    timeout: timedelta

    def wait(self) -> None:
        self.work.wait(self.timeout)
