"""The link "fast-gloo": gloo, with faster algorithms for some collectives.

gloo's reduce-scatter moves as many bytes as an all-reduce, and its small collectives pay several
latencies where one is enough. Some collectives therefore run as our own exchange, or are relayed by
one rank; exchange.py and relay.py say when and why. The others call the process group's methods.
torch.distributed's functions do the same after about 20 µs of argument checks, most of which the
axis has already made.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import torch.distributed as dist
from torch import Tensor

from shardlab.comm.pending import Rows, Work
from shardlab.comm.torch_link import TorchLink
from shardlab.comm.tracing import record_as
from shardlab.comm.transport import AxisWorld
from shardlab.links.fast_gloo import exchange, relay

_OPS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


def _options(kind: Any, op: str) -> Any:
    options = kind()
    options.reduceOp = _OPS[op]
    return options


_REDUCE = {op: _options(dist.AllreduceOptions, op) for op in _OPS}
_SCATTER = {op: _options(dist.ReduceScatterOptions, op) for op in _OPS}


class FastGlooLink(TorchLink):
    """The collectives of one gloo group, each by the fastest algorithm for its size.

    Args:
        world: the world of the ranks.
        ranks: the members' global ranks, in order.
        oversubscribed: whether all ranks of the world run on one host with fewer cores than ranks.

    Raises:
        ValueError: the world's backend isn't gloo.
    """

    def __init__(
        self, world: AxisWorld, ranks: tuple[int, ...], *, oversubscribed: bool = False
    ) -> None:
        if world.backend != "gloo":
            raise ValueError(
                f'the link "fast-gloo" needs gloo, and this world is over {world.backend}: choose '
                'link="torch", or World.join(backend="gloo")'
            )
        super().__init__(world.group(ranks), "gloo", world.device, world.collective_timeout)
        self._ranks = ranks
        self._oversubscribed = oversubscribed
        self._relays = itertools.count()

    def algorithm_for(self, kind: str, x: Tensor, waits_immediately: bool) -> str:
        """Return the algorithm for a collective: "relay", "exchange", or "" for gloo's own."""
        if (
            waits_immediately
            and self._oversubscribed
            and relay.is_faster(kind, x, len(self._ranks))
        ):
            return "relay"
        return "exchange" if exchange.is_faster(kind, x, len(self._ranks)) else ""

    def start_all_reduce(
        self, x: Tensor, out: Tensor, op: str, waits_immediately: bool = False
    ) -> Work:
        """All-reduce contiguous `x` into `out`, which may be `x`."""
        if work := self._start_faster("all_reduce", x, out, op, waits_immediately):
            return work
        if out is not x:
            out.copy_(x)
        return self.group.allreduce([out], _REDUCE[op])  # type: ignore[no-any-return]

    def start_all_gather(self, x: Tensor, out: Tensor, waits_immediately: bool = False) -> Work:
        """All-gather contiguous `x` into `out`."""
        work = self._start_faster("all_gather", x, out, "sum", waits_immediately)
        return work or self.group._allgather_base(out, x)

    def start_reduce_scatter(
        self, x: Tensor, out: Tensor, op: str, waits_immediately: bool = False
    ) -> Work:
        """Reduce-scatter contiguous `x` into `out`."""
        work = self._start_faster("reduce_scatter", x, out, op, waits_immediately)
        return work or self.group._reduce_scatter_base(out, x, _SCATTER[op])

    def _start_faster(
        self, kind: str, x: Tensor, out: Tensor, op: str, waits_immediately: bool
    ) -> Work | None:
        """Start a collective by one of our algorithms; None if gloo's own is the fastest."""
        algorithm = self.algorithm_for(kind, x, waits_immediately)
        if not algorithm:
            return None
        with record_as(kind, max(x.nbytes, out.nbytes), self._ranks, x.dtype):
            if algorithm == "exchange":
                return exchange.STARTS[kind](self.group, x, out, op)
            options: dict[str, Any] = {"timeout": self._timeout, "number": next(self._relays)}
            return relay.start(kind, self.group, x, out, op, **options)

    def start_all_to_all(self, x: Tensor, out: Tensor, rows: Rows = None) -> Work:
        """Exchange pieces of dim 0: equal ones, or as many rows to and from each rank as given."""
        to, source = rows or ([], [])
        return self.group.alltoall_base(out, x, source, to)  # type: ignore[no-any-return]

    def start_broadcast(self, out: Tensor, source: int) -> Work:
        """Broadcast `out` of rank `source`, in place."""
        return self.group.broadcast(out, source)  # type: ignore[no-any-return]

    def start_send(self, x: Tensor, to: int, tag: int) -> Work:
        """Send contiguous `x`."""
        return self._message(self.group.send([x], to, tag))

    def start_recv(self, out: Tensor, source: int, tag: int) -> Work:
        """Receive into contiguous `out`."""
        return self._message(self.group.recv([out], source, tag))

    def barrier(self) -> None:
        """Wait for every rank."""
        self.group.barrier().wait()


def connect(world: AxisWorld, ranks: tuple[int, ...]) -> FastGlooLink:
    """Return the link over `ranks`."""
    return FastGlooLink(world, ranks, oversubscribed=_is_oversubscribed(world))


def _is_oversubscribed(world: AxisWorld) -> bool:
    """Return whether all ranks run on this host and outnumber its cores; the same on every rank.

    It counts the host's cores, not those that this process may use: a launcher may give each rank
    its own cores, and all ranks must get the same answer.
    """
    return world.size > (os.cpu_count() or 1) and world.failure_reporter.all_on_this_host()
