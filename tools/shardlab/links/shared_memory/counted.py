"""A shared-memory link that tells the ledger what it is asked for: no dispatcher sees it."""

from __future__ import annotations

import torch
from torch import Tensor

from shardlab.comm.pending import Rows
from shardlab.links.shared_memory.link import SharedMemoryLink
from shardlab.links.shared_memory.messages import Sent, Several
from shardlab.links.shared_memory.queue import Collective
from shardlab.proofs.ledger import asked


class CountedLink(SharedMemoryLink):
    """What an axis calls; `prompt`, whether a wait follows at once, makes no difference here."""

    device = torch.device("cpu")
    groups_exchanges = False

    def barrier(self) -> None:
        """Return when every rank has come here."""
        with asked("barrier", 0, self._ranks, torch.uint8):
            super().barrier()

    def start_all_reduce(self, x: Tensor, out: Tensor, op: str, prompt: bool = False) -> Collective:
        """Start joining every rank's `x` into `out`."""
        with asked("all_reduce", x.nbytes, self._ranks, x.dtype):
            return super().start_all_reduce(x, out, op)

    def start_all_gather(self, x: Tensor, out: Tensor, prompt: bool = False) -> Collective:
        """Start setting every rank's `x` side by side in `out`."""
        with asked("all_gather", out.nbytes, self._ranks, x.dtype):
            return super().start_all_gather(x, out)

    def start_reduce_scatter(
        self, x: Tensor, out: Tensor, op: str, prompt: bool = False
    ) -> Collective:
        """Start joining this rank's row of every rank's `x` into `out`."""
        with asked("reduce_scatter", x.nbytes, self._ranks, x.dtype):
            return super().start_reduce_scatter(x, out, op)

    def start_all_to_all(  # type: ignore[override]
        self, x: Tensor, out: Tensor, rows: Rows = None
    ) -> Collective | Several:
        """Start setting this rank's row of every rank's `x` side by side in `out`.

        Uneven pieces go as messages: a slot has equal rows.
        """
        with asked("all_to_all", x.nbytes, self._ranks, x.dtype):
            if rows is None:
                return super().start_all_to_all(x, out)
            to, source = (torch.split(t, [*n]) for t, n in zip((x, out), rows, strict=True))
            source[self._me].copy_(to[self._me])
            peers = [peer for peer in range(self._size) if peer != self._me]
            works = [self.start_recv(source[p], p, 0) for p in peers if source[p].numel()]
            works += [self.start_send(to[p], p, 0) for p in peers if to[p].numel()]
            return Several(works)

    def start_broadcast(self, out: Tensor, source: int) -> Collective:
        """Start copying `out` of the rank at place `source` into every rank's `out`."""
        with asked("broadcast", out.nbytes, self._ranks, out.dtype):
            return super().start_broadcast(out, source)

    def start_send(self, x: Tensor, to: int, tag: int) -> Sent:
        """Start sending `x` to the rank at place `to`."""
        with asked("send", x.nbytes, (self._ranks[self._me], self._ranks[to]), x.dtype):
            return super().start_send(x, to, tag)

    def start_recv(self, out: Tensor, source: int, tag: int) -> Sent:
        """Start receiving `out` from the rank at place `source`."""
        with asked("recv", out.nbytes, (self._ranks[source], self._ranks[self._me]), out.dtype):
            return super().start_recv(out, source, tag)
