"""Every rank's slots as tensors, and the sums over them.

Dimension key: N ranks, D slots of a rank (DEPTH), C elements of a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor

from shardlab.links.shared_memory.layout import DEPTH, RegionLayout

Reduction = Callable[[Sequence[Tensor], Tensor], None]
_MAX_CACHED = 1000


class SlotView(NamedTuple):
    """The same part of one slot of every rank: as one tensor [N, …], and rank by rank."""

    stack: Tensor
    rows: tuple[Tensor, ...]


class Slots:
    """Every rank's slots, in the dtype and shape that a collective needs.

    Making a view costs as much as copying a kilobyte, and training steps repeat the same shapes, so
    the views are cached.

    Attributes:
        me: this rank's index on the axis.
        ranks: the number of ranks.
        bytes: bytes of one slot.
    """

    def __init__(self, memory: Tensor, layout: RegionLayout, me: int) -> None:
        self.me = me
        self.ranks = layout.ranks
        self.bytes = layout.slot
        self._memory = memory
        self._layout = layout
        self._cache: dict[Any, tuple[SlotView, ...]] = {}

    def views(self, dtype: torch.dtype, start: int, shape: Size) -> tuple[SlotView, ...]:
        """Return, for each of the D slots of a rank, its elements from `start` on as `shape`."""
        key = (dtype, start, shape)
        views = self._cache.get(key)
        if views is None:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            views = self._cache[key] = self._make_views(dtype, start, shape)
        return views

    def _make_views(self, dtype: torch.dtype, start: int, shape: Size) -> tuple[SlotView, ...]:
        slots_NDC = self._layout.slots(self._memory, dtype)
        part_NDC = slots_NDC[:, :, start : start + shape.numel()]
        part_ND = part_NDC.view(self.ranks, DEPTH, *shape)
        return tuple(SlotView(part_ND[:, d], part_ND[:, d].unbind()) for d in range(DEPTH))


def add(rows: Sequence[Tensor], out: Tensor) -> None:
    """Write the sum of the rows, added in their order, each sum rounded to their dtype."""
    torch.add(rows[0], rows[1], out=out)
    for row in rows[2:]:
        torch.add(out, row, out=out)


def maximum(rows: Sequence[Tensor], out: Tensor) -> None:
    """Write the largest of each element of the rows."""
    torch.maximum(rows[0], rows[1], out=out)
    for row in rows[2:]:
        torch.maximum(out, row, out=out)
