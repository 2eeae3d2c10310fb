"""Collectives over gloo, made of exchanges: each rank sends every other one what it needs, at once.

gloo's all-reduce goes round a ring, 2(n-1) messages one after another, whatever the size; its
reduce-scatter is that same all-reduce with most of the result thrown away; its all-gather writes
into a buffer of its own and copies. An exchange (gloo's all-to-all) is one message to each peer,
all under way together. So:

    reduce_scatter   an exchange of rows, and a local sum: half of the bytes
    all_gather       the same tensor to every peer, straight to where it belongs
    all_reduce       direct: the whole tensor to every peer and a local sum, one latency but n - 1
                     times the bytes; for small tensors, and for two ranks
                     in two: the reduce-scatter, then the all-gather, for large ones

`CHOICES` says which is used where. Sums are added in rank order, so every rank that adds the same
values gets the same bits. Everything travels as bytes, so any dtype does.

Dimension key: N ranks, K elements of a row, B bytes of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_KIB, _MIB = 1 << 10, 1 << 20

# For each collective and number of ranks: (up to how many bytes of x, how), in order; past the last
# entry gloo's own is faster. Found on two cores with gloo over loopback, medians of interleaved
# repeats (`pytest -m benchmark -s tests/shardlab/test_exchange.py` measures it again): an entry
# stands where its median was at most 0.9 of gloo's own in each of three runs. Numbers of ranks
# that were not measured use the next larger one that was; more ranks than the largest use gloo.
CHOICES: dict[str, dict[int, Sequence[tuple[float, str]]]] = {
    "all_reduce": {
        2: [(1 * _MIB, "direct"), (float("inf"), "in two")],
        4: [(256 * _KIB, "direct")],
        8: [(64 * _KIB, "direct")],
    },
    "all_gather": {
        2: [(float("inf"), "each")],
        4: [(256 * _KIB, "copies"), (float("inf"), "each")],
        8: [(64 * _KIB, "copies"), (float("inf"), "each")],
    },
    "reduce_scatter": {
        2: [(float("inf"), "each")],
        4: [(4 * _MIB, "at once"), (float("inf"), "each")],
        8: [(4 * _MIB, "at once"), (float("inf"), "each")],
    },
}
_PART = 128 << 10  # elements that are summed at a time, so that the sum stays in the cache
_CPU = torch.device("cpu")


def choice(collective: str, size: int, nbytes: int) -> str:
    """Return how `collective` of a tensor of `nbytes` goes among `size` ranks; "" for gloo's own."""
    table = CHOICES[collective]
    measured = min((ranks for ranks in table if ranks >= size), default=0)
    for limit, how in table.get(measured, ()):
        if nbytes <= limit:
            return how
    return ""


def suits_all_reduce(x: Tensor, size: int, op: str) -> bool:
    """Whether an exchange beats gloo's own all-reduce of `x`."""
    return x.is_cpu and choice("all_reduce", size, x.nbytes) != ""


def suits_all_gather(x: Tensor, size: int) -> bool:
    """Whether an exchange beats gloo's own all-gather of `x`."""
    return x.is_cpu and choice("all_gather", size, x.nbytes) != ""


def suits_reduce_scatter(x: Tensor, size: int, op: str) -> bool:
    """Whether an exchange beats gloo's own reduce-scatter of `x`."""
    return x.is_cpu and choice("reduce_scatter", size, x.nbytes) != ""


class Exchange:
    """Messages under way, and what is to be done when they have come.

    Args:
        works: gloo's.
        finish: called once all are there.
    """

    __slots__ = ("_finish", "_works")

    def __init__(self, works: list[Any], finish: Callable[[], None] | None = None) -> None:
        self._works = works
        self._finish = finish

    def wait(self) -> None:
        """Block until the messages have come and the result is made; idempotent."""
        for work in self._works:
            work.wait()
        self._works = []
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
