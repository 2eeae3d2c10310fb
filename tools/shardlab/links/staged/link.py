"""GPU tensors over gloo: every message goes through pinned memory of the host.

gloo reads and writes the CPU's memory. Given a GPU's tensor it stages some collectives itself, has
no kernel for others, and reads a point-to-point message from the device's address as if it were
the host's. So ranks that share a GPU, which NCCL refuses, are all staged here: to try a grid on
one GPU, never to measure it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shardlab.comm.pending import Rows, Work
from shardlab.comm.torch_link import TorchLink


class StagedLink:
    """A gloo link whose tensors are copied to the host before it starts, and back after `wait`.

    Args:
        gloo: what carries the host's copies.
        device: of the tensors that come and go.
    """

    groups_exchanges = False

    def __init__(self, gloo: TorchLink, device: torch.device) -> None:
        self.device = device
        self._gloo = gloo

    def start_all_reduce(
        self, x: Tensor, out: Tensor, op: str, waits_immediately: bool = False
    ) -> Work:
        """All-reduce contiguous `x` into `out`, which may be `x`."""
        sent = self._sent(x)
        return self._back(out, sent, self._gloo.start_all_reduce(sent, sent, op))

    def start_all_gather(self, x: Tensor, out: Tensor, waits_immediately: bool = False) -> Work:
        """All-gather contiguous `x` into `out`."""
        return self._into(out, lambda host: self._gloo.start_all_gather(self._sent(x), host))

    def start_reduce_scatter(
        self, x: Tensor, out: Tensor, op: str, waits_immediately: bool = False
    ) -> Work:
        """Reduce-scatter contiguous `x` into `out`."""
        return self._into(
            out, lambda host: self._gloo.start_reduce_scatter(self._sent(x), host, op)
        )

    def start_all_to_all(self, x: Tensor, out: Tensor, rows: Rows = None) -> Work:
        """Exchange pieces of dim 0: equal ones, or so many rows to and from each rank."""
        return self._into(out, lambda host: self._gloo.start_all_to_all(self._sent(x), host, rows))

    def start_broadcast(self, out: Tensor, source: int) -> Work:
        """Broadcast `out` of rank `source`, in place."""
        host = self._sent(out)
        return self._back(out, host, self._gloo.start_broadcast(host, source))

    def start_send(self, x: Tensor, to: int, tag: int) -> Work:
        """Send contiguous `x`."""
        host = self._sent(x)
        return _Staged(self._gloo.start_send(host, to, tag), host)

    def start_recv(self, out: Tensor, source: int, tag: int) -> Work:
        """Receive into contiguous `out`."""
        return self._into(out, lambda host: self._gloo.start_recv(host, source, tag))

    def barrier(self) -> None:
        """Wait for every rank."""
        self._gloo.barrier()

    def close(self) -> None:
        """Let go of the group."""
        self._gloo.close()

    def _host(self, like: Tensor) -> Tensor:
        return torch.empty(
            like.shape, dtype=like.dtype, device="cpu", pin_memory=self.device.type == "cuda"
        )

    def _sent(self, x: Tensor) -> Tensor:
        """Return `x` on the host; the copy waits for what the device computes before it."""
        return self._host(x).copy_(x.detach())

    def _into(self, out: Tensor, start: Callable[[Tensor], Work]) -> Work:
        host = self._host(out)
        return self._back(out, host, start(host))

    def _back(self, out: Tensor, host: Tensor, work: Work) -> Work:
        return _Staged(work, host, out)


class _Staged:
    """A work that ends with a copy to the device; keeps the host's buffer until then."""

    def __init__(self, work: Any, host: Tensor, out: Tensor | None = None) -> None:
        self._work, self._host, self._out = work, host, out

    def wait(self) -> None:
        self._work.wait()
        if self._out is not None:
            self._out.detach().copy_(self._host)
