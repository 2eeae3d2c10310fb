"""Normal numbers of a whole tensor, of which a rank draws what it keeps and passes over the rest.

torch makes an fp64 tensor's numbers in order, each from one 64-bit number of the generator, sixteen
at a time; where sixteen doesn't divide their count, the last sixteen are made anew at the end
(`normal_fill` in aten/src/ATen/native/cpu/DistributionTemplates.h). So a box of the tensor can be
drawn without the others: passing over a number costs a fifth of making one, and what is held at
once is the box and a block. The numbers are those of `torch.randn` for the whole tensor.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from math import gcd, prod

import torch
from torch import Tensor

_BLOCK = 2**16  # elements drawn, or passed over, at once
_APART = 2**10  # a gap of so many elements in each row is worth passing over


def key(*parts: object) -> int:
    """Return a 63-bit seed for these parts; the same in every process and Python version."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def draw(
    name: str, shape: Sequence[int], *, seed: int, std: float, dtype: torch.dtype = torch.float32,
    rows: range | None = None, columns: range | None = None,
) -> Tensor:  # fmt: skip
    """Return a box of the tensor called `name`: normal, mean 0, alike whatever box and dtype.

    Args:
        name: the parameter's name in the whole model; with `seed` it is the generator's key.
        shape: of the whole tensor.
        seed: one number for the model.
        std: standard deviation.
        dtype: what the fp64 draw is rounded to.
        rows: which of dim 0; all, unless given.
        columns: which of the elements of a row, its other dims laid flat; all, unless given.

    Returns:
        [rows, columns] on the CPU; in `shape` where both are all.
    """
    width = prod(shape[1:])
    rows = range(shape[0]) if rows is None else rows
    columns = range(width) if columns is None else columns
    kept = torch.empty(len(rows), len(columns), dtype=dtype, device="cpu")
    numbers = _Numbers(key(seed, name), shape[0] * width)
    if width - len(columns) >= _APART:
        for place, row in enumerate(rows):
            begin = row * width
            found = numbers.read(begin + columns.start, begin + columns.stop)
            kept[place].copy_(found.mul_(std))
    else:
        for begin, end in _blocks(rows, width):
            found = numbers.read(begin * width, end * width).mul_(std).view(-1, width)
            kept[begin - rows.start : end - rows.start].copy_(
                found[:, columns.start : columns.stop]
            )
    return kept.view(shape) if kept.numel() == prod(shape) else kept


def _blocks(rows: range, width: int) -> Iterator[tuple[int, int]]:
    """Yield rows in blocks that end where sixteen divides the elements so far, but for the last."""
    step = 16 // gcd(16, width)
    step *= max(1, _BLOCK // (step * width))
    edges = [rows.start, *range((rows.start // step + 1) * step, rows.stop, step), rows.stop]
    if len(edges) > 2 and (edges[-1] - edges[-2]) * width < 32:
        del edges[-2]  # what is read last may begin sixteen before the end
    return itertools.pairwise(edges) if len(rows) else iter(())


class _Numbers:
    """The numbers of a tensor of `size` elements, read forwards."""

    def __init__(self, seed: int, size: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._size = size
        self._at = 0
        self._passed = torch.empty(0, dtype=torch.int64, device="cpu")

    def read(self, begin: int, end: int) -> Tensor:
        """Return numbers `begin` … `end` − 1, fp64."""
        low, high = begin // 16 * 16, min(-(-end // 16) * 16, self._size)
        if self._size % 16 and high > self._size - 16:  # those that are made anew
            low, high = max(0, min(low, (self._size - 16) // 16 * 16)), self._size
        self._pass_over(low - self._at)
        made = torch.empty(high - low, dtype=torch.float64, device="cpu")
        made.normal_(generator=self._generator)
        self._at = high
        return made[begin - low : end - low]

    def _pass_over(self, count: int) -> None:
        if count and not len(self._passed):
            self._passed = torch.empty(_BLOCK, dtype=torch.int64, device="cpu")
        for begin in range(0, count, _BLOCK):
            self._passed[: min(_BLOCK, count - begin)].random_(generator=self._generator)
