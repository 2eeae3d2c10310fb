"""Normal random numbers of a whole tensor, of which a rank draws its part and skips the rest.

torch makes an fp64 tensor's numbers in order, each from one 64-bit number of the generator, sixteen
at a time. If sixteen doesn't divide their count, it draws the last sixteen again at the end
(`normal_fill` in aten/src/ATen/native/cpu/DistributionTemplates.h). A box of the tensor can
therefore be drawn without the rest. Skipping a number costs a fifth of drawing it, and memory holds
only the box and one block at a time. The numbers equal those of `torch.randn` for the whole tensor.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from math import gcd, prod

import torch
from torch import Tensor

_BLOCK = 2**16  # elements drawn, or skipped, at once
_MIN_GAP = 2**10  # a gap of at least so many elements in each row is skipped


def seed_from(*parts: object) -> int:
    """Return a 63-bit seed made from `parts`, the same in every process and Python version."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def keyed_normal(
    name: str, shape: Sequence[int], *, seed: int, std: float, dtype: torch.dtype = torch.float32,
    rows: range | None = None, columns: range | None = None,
) -> Tensor:  # fmt: skip
    """Return a box of the normal random tensor `name`, which doesn't depend on the box or dtype.

    Args:
        name: the parameter's name in the whole model; with `seed` it makes the generator's seed.
        shape: the shape of the whole tensor.
        seed: the model's seed.
        std: the standard deviation; the mean is 0.
        dtype: the dtype to which the fp64 numbers are rounded.
        rows: the box's range of dim 0; by default all.
        columns: the box's range of a row's elements, with the other dims flattened; by default all.

    Returns:
        [rows, columns] on the CPU; of `shape` if the box is the whole tensor.
    """
    width = prod(shape[1:])
    rows = range(shape[0]) if rows is None else rows
    columns = range(width) if columns is None else columns
    box = torch.empty(len(rows), len(columns), dtype=dtype, device="cpu")
    numbers = _NormalStream(seed_from(seed, name), shape[0] * width)
    if width - len(columns) >= _MIN_GAP:
        for index, row in enumerate(rows):
            begin = row * width
            block = numbers.read(begin + columns.start, begin + columns.stop)
            box[index].copy_(block.mul_(std))
    else:
        for begin, end in _blocks(rows, width):
            block = numbers.read(begin * width, end * width).mul_(std).view(-1, width)
            box[begin - rows.start : end - rows.start].copy_(block[:, columns.start : columns.stop])
    return box.view(shape) if box.numel() == prod(shape) else box


def _blocks(rows: range, width: int) -> Iterator[tuple[int, int]]:
    """Yield blocks of rows; each but the last ends at a multiple of sixteen elements."""
    step = 16 // gcd(16, width)
    step *= max(1, _BLOCK // (step * width))
    edges = [rows.start, *range((rows.start // step + 1) * step, rows.stop, step), rows.stop]
    if len(edges) > 2 and (edges[-1] - edges[-2]) * width < 32:
        del edges[-2]  # the last block may have to begin sixteen elements before the end
    return itertools.pairwise(edges) if len(rows) else iter(())


class _NormalStream:
    """The normal numbers of a tensor of `size` elements, read from front to back."""

    def __init__(self, seed: int, size: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._size = size
        self._position = 0
        self._skipped = torch.empty(0, dtype=torch.int64, device="cpu")

    def read(self, begin: int, end: int) -> Tensor:
        """Return numbers `begin` … `end` − 1, fp64."""
        first, last = begin // 16 * 16, min(-(-end // 16) * 16, self._size)
        if self._size % 16 and last > self._size - 16:  # torch draws the last sixteen again
            first, last = max(0, min(first, (self._size - 16) // 16 * 16)), self._size
        self._skip(first - self._position)
        numbers = torch.empty(last - first, dtype=torch.float64, device="cpu")
        numbers.normal_(generator=self._generator)
        self._position = last
        return numbers[begin - first : end - first]

    def _skip(self, count: int) -> None:
        if count and not len(self._skipped):
            self._skipped = torch.empty(_BLOCK, dtype=torch.int64, device="cpu")
        for begin in range(0, count, _BLOCK):
            self._skipped[: min(_BLOCK, count - begin)].random_(generator=self._generator)
