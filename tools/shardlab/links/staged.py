"""The link "staged": GPU tensors over gloo, through the host's memory, for ranks that share a GPU.

A world on gloo whose ranks have GPUs uses it automatically.

gloo reads and writes the CPU's memory. For a GPU tensor it copies some collectives through the host
itself, has no kernel for others, and reads a point-to-point message from the device's address as if
it were a host address. NCCL refuses ranks that share a GPU. This link copies every message through
the host, so that such ranks can try a grid on one GPU. It is too slow for measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shardlab.comm.pending import Rows, Work
from shardlab.comm.torch_link import TorchLink
from shardlab.comm.transport import AxisWorld, Transport


class StagedLink(Transport):
    """A gloo link whose tensors are copied to the host before it starts, and back after `wait`.

    Args:
        world: the world of the ranks.
        ranks: the members' global ranks, in order.
    """

    def __init__(self, world: AxisWorld, ranks: tuple[int, ...]) -> None:
        self.device = world.device
        self._gloo = TorchLink(
            world.group(ranks), world.backend, world.device, world.collective_timeout
        )

    def start_all_reduce(self, x: Tensor, out: Tensor, op: str) -> Work:
        """All-reduce contiguous `x` into `out`, which may be `x`."""
        sent = self._copy_to_host(x)
        return self._copy_back(out, sent, self._gloo.start_all_reduce(sent, sent, op))

    def start_all_gather(self, x: Tensor, out: Tensor) -> Work:
        """All-gather contiguous `x` into `out`."""
        return self._receive_through_host(
            out, lambda host: self._gloo.start_all_gather(self._copy_to_host(x), host)
        )

    def start_reduce_scatter(self, x: Tensor, out: Tensor, op: str) -> Work:
        """Reduce-scatter contiguous `x` into `out`."""
        return self._receive_through_host(
            out, lambda host: self._gloo.start_reduce_scatter(self._copy_to_host(x), host, op)
        )

    def start_all_to_all(self, x: Tensor, out: Tensor, rows: Rows = None) -> Work:
        """Exchange pieces of dim 0: equal ones, or as many rows to and from each rank as given."""
        return self._receive_through_host(
            out, lambda host: self._gloo.start_all_to_all(self._copy_to_host(x), host, rows)
        )

    def start_broadcast(self, out: Tensor, source: int) -> Work:
        """Broadcast `out` of rank `source`, in place."""
        host = self._copy_to_host(out)
        return self._copy_back(out, host, self._gloo.start_broadcast(host, source))

    def start_send(self, x: Tensor, to: int, tag: int) -> Work:
        """Send contiguous `x`."""
        host = self._copy_to_host(x)
        return _Staged(self._gloo.start_send(host, to, tag), host)

    def start_recv(self, out: Tensor, source: int, tag: int) -> Work:
        """Receive into contiguous `out`."""
        return self._receive_through_host(
            out, lambda host: self._gloo.start_recv(host, source, tag)
        )

    def barrier(self) -> None:
        """Wait for every rank."""
        self._gloo.barrier()

    def close(self) -> None:
        """Drop the reference to the group."""
        self._gloo.close()

    def _host_buffer(self, like: Tensor) -> Tensor:
        return torch.empty(
            like.shape, dtype=like.dtype, device="cpu", pin_memory=self.device.type == "cuda"
        )

    def _copy_to_host(self, x: Tensor) -> Tensor:
        """Return a copy of `x` on the host, made after all earlier work of the device's stream."""
        return self._host_buffer(x).copy_(x.detach())

    def _receive_through_host(self, out: Tensor, start: Callable[[Tensor], Work]) -> Work:
        host = self._host_buffer(out)
        return self._copy_back(out, host, start(host))

    def _copy_back(self, out: Tensor, host: Tensor, work: Work) -> Work:
        return _Staged(work, host, out)


class _Staged:
    """A work whose `wait` copies the result to the device; keeps the host's buffer until then."""

    def __init__(self, work: Any, host: Tensor, out: Tensor | None = None) -> None:
        self._work, self._host, self._out = work, host, out

    def wait(self) -> None:
        self._work.wait()
        if self._out is not None:
            self._out.detach().copy_(self._host)
