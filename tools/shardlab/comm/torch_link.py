"""An axis over torch's own backends: gloo between CPUs, NCCL between GPUs.

gloo's reduce-scatter moves an all-reduce's bytes, and its small collectives pay several latencies
where one would do, so on gloo some collectives go by our own exchange, or by way of one rank
(exchange.py and relay.py say when and why). The calls go to the process group's methods:
torch.distributed's functions do the same after some 20 µs of argument checks, most of which the
axis has made already.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shardlab.comm.pending import Work
from shardlab.links.gloo import exchange, relay

_OPS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


def _options(kind: Any, op: str) -> Any:
    options = kind()
    options.reduceOp = _OPS[op]
    return options


_REDUCE = {op: _options(dist.AllreduceOptions, op) for op in _OPS}
_SCATTER = {op: _options(dist.ReduceScatterOptions, op) for op in _OPS}


class TorchLink:
    """The collectives of one process group; "mean" adds, the axis divides.

    Args:
        group: torch's process group.
        size: how many ranks it has.
        backend: "gloo", "nccl" or "fake".
        timeout: seconds that a message may take on gloo, which forgets the group's for messages.
        crowded: all ranks of the world are on one host that has fewer cores.
    """

    def __init__(
        self, group: Any, size: int, backend: str, timeout: float, *, crowded: bool = False
    ) -> None:
        self.group = group
        self._timeout = timedelta(seconds=timeout)
        self._size = size
        self._gloo = backend == "gloo"
        self._crowded = crowded
        self._relays = itertools.count()
        self.groups_exchanges = backend == "nccl"

    def way(self, kind: str, x: Tensor, prompt: bool) -> str:
        """Return how `kind` of this tensor goes: "relay", "exchange", or "" for torch's own."""
        if not self._gloo:
            return ""
        if prompt and self._crowded and relay.suits(kind, x, self._size):
            return "relay"
        return "exchange" if exchange.suits(kind, x, self._size) else ""

    def start_all_reduce(self, x: Tensor, out: Tensor, op: str, way: str = "") -> Work:
        """All-reduce contiguous `x` into `out`, which may be `x`."""
        if way == "relay":
            return relay.start_all_reduce(
                self.group, x, out, op, self._timeout, number=next(self._relays)
            )
        if way:
            return exchange.start_all_reduce(self.group, x, out, op)
        if out is not x:
            out.copy_(x)
        return self.group.allreduce([out], _REDUCE[op])  # type: ignore[no-any-return]

    def start_all_gather(self, x: Tensor, out: Tensor, way: str = "") -> Work:
        """All-gather contiguous `x` into `out`."""
        if way == "relay":
            return relay.start_all_gather(
                self.group, x, out, self._timeout, number=next(self._relays)
            )
        if way:
            return exchange.start_all_gather(self.group, x, out)
        return self.group._allgather_base(out, x)  # type: ignore[no-any-return]

    def start_reduce_scatter(self, x: Tensor, out: Tensor, op: str, way: str = "") -> Work:
        """Reduce-scatter contiguous `x` into `out`."""
        if way == "relay":
            return relay.start_reduce_scatter(
                self.group, x, out, op, self._timeout, number=next(self._relays)
            )
        if way:
            return exchange.start_reduce_scatter(self.group, x, out, op)
        return self.group._reduce_scatter_base(out, x, _SCATTER[op])  # type: ignore[no-any-return]

    def start_all_to_all(self, x: Tensor, out: Tensor) -> Work:
        """Exchange equal pieces of dim 0."""
        return self.group.alltoall_base(out, x, [], [])  # type: ignore[no-any-return]

    def start_broadcast(self, out: Tensor, source: int) -> Work:
        """Broadcast `out` of rank `source`, in place."""
        return self.group.broadcast(out, source)  # type: ignore[no-any-return]

    def start_send(self, x: Tensor, to: int, tag: int) -> Work:
        """Send contiguous `x`."""
        return self._message(self.group.send([x], to, tag))

    def start_recv(self, out: Tensor, source: int, tag: int) -> Work:
        """Receive into contiguous `out`."""
        return self._message(self.group.recv([out], source, tag))

    def _message(self, work: Any) -> Work:
        return _Timed(work, self._timeout) if self._gloo else work

    def start_grouped(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]]
    ) -> list[Work]:
        """Start sends and receives that may cross as one NCCL group; one work for each."""
        operations = [dist.P2POp(dist.isend, x, group=self.group, group_peer=to) for x, to in sends]
        operations += [
            dist.P2POp(dist.irecv, out, group=self.group, group_peer=source)
            for out, source in receives
        ]
        if not operations:
            return []
        works = dist.batch_isend_irecv(operations)
        if len(works) == 1:  # a backend that coalesces returns one work for the whole batch
            works = works * len(operations)
        return works  # type: ignore[return-value]

    def barrier(self) -> None:
        """Wait for every rank."""
        self.group.barrier().wait()

    def gather_small(self, x: Tensor, out: Tensor, device: torch.device) -> None:
        """All-gather a few CPU numbers, on the device that the backend can reach."""
        there, mine = out.to(device), x.to(device)
        self.start_all_gather(mine, there, self.way("all_gather", mine, prompt=True)).wait()
        out.copy_(there)


class _Timed:
    """A work with a limit to its wait."""

    def __init__(self, work: Any, timeout: timedelta) -> None:
        self._work = work
        self._timeout = timeout

    def wait(self) -> None:
        self._work.wait(self._timeout)
