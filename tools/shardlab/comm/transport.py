"""What an axis needs from others, as protocols: a transport, and the world that connects it.

`TorchLink` is the default transport; the folder shardlab/links has others. An axis and a link know
a world by `AxisWorld` only, so neither imports `world.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from shardlab.comm.pending import Rows, Work

if TYPE_CHECKING:
    from shardlab.comm.consistency_check import ConsistencyCheck
    from shardlab.comm.faults import FailureReporter


class Transport(Protocol):
    """What carries the collectives and messages of one axis.

    Every `start_…` takes contiguous tensors and returns at once; the `wait` of what it returns
    blocks until the result is complete. The op "mean" only adds; the axis divides.

    Attributes:
        device: the device of the tensors that it carries.
        groups_exchanges: whether sends and receives that cross must be started as one group.
    """

    device: torch.device
    groups_exchanges: bool = False

    def start_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Work:
        """All-reduce `x` into `out`, which may be `x`."""
        ...

    def start_all_gather(self, x: Tensor, out: Tensor) -> Work:
        """All-gather `x` into `out`."""
        ...

    def start_reduce_scatter(self, x: Tensor, out: Tensor, op: str) -> Work:
        """Reduce-scatter `x` into `out`."""
        ...

    def start_all_to_all(self, x: Tensor, out: Tensor, rows: Rows = None) -> Work:
        """Exchange pieces of dim 0: equal ones, or as many rows to and from each rank as given."""
        ...

    def start_broadcast(self, out: Tensor, source: int) -> Work:
        """Broadcast `out` of rank `source` of the axis, in place."""
        ...

    def start_send(self, x: Tensor, to: int, tag: int) -> Work:
        """Send `x` to rank `to` of the axis."""
        ...

    def start_recv(self, out: Tensor, source: int, tag: int) -> Work:
        """Receive `out` from rank `source` of the axis."""
        ...

    def start_grouped(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]]
    ) -> list[Work]:
        """Start messages that may cross; called only if `groups_exchanges`."""
        raise RuntimeError("this transport starts its messages one by one")

    def barrier(self) -> None:
        """Wait for every rank of the axis."""

    def close(self) -> None:
        """Release what the transport holds; the world calls this when it leaves."""


class AxisWorld(Protocol):
    """What an axis and a link use of a `World`; its docstring describes the attributes."""

    rank: int
    size: int
    backend: str
    device: torch.device
    wide_sums: bool
    collective_timeout: float
    failure_reporter: FailureReporter
    consistency_check: ConsistencyCheck | None
    watchdog: Any

    def connect(self, ranks: tuple[int, ...], link: str) -> Transport:
        """Return the transport of an axis over `ranks`."""
        ...

    def group(self, ranks: tuple[int, ...]) -> Any:
        """Return torch's process group over `ranks`."""
        ...

    def store_for(self, name: str, ranks: tuple[int, ...]) -> Any:
        """Return a store whose keys only these ranks use, for the purpose `name`."""
        ...
