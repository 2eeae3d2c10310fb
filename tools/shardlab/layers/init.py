"""Initial weights: each rank draws its slice of the whole model's, seeded by the parameter's name.

Every grid, dtype and device therefore starts from the same model, and no rank holds more than its
slice. If a layer drew its slice from a seed of its own, the model would depend on the
size of the tensor axis: n slices from one seed are n equal slices, and n seeds give another matrix
for every n. Megatron's CPU initialisation draws the whole matrix and slices it
(`_initialize_affine_weight_cpu` in megatron/core/tensor_parallel/layers.py). It uses the global
generator, so the order in which layers are made matters there. Its GPU initialisation draws each
slice from a seed of its own.

With `device="meta"` nothing is drawn. A parameter then has a shape and a function that draws its
rows, and FSDP draws only what its shard holds. A model may so be larger than any device.

torch makes an fp64 tensor's numbers in order, each from one 64-bit number of the generator, sixteen
at a time. If sixteen doesn't divide their count, it draws the last sixteen again at the end
(`normal_fill` in aten/src/ATen/native/cpu/DistributionTemplates.h). A box of the tensor can
therefore be drawn without the rest. Skipping a number costs a fifth of drawing it, and memory holds
only the box and one block at a time. The numbers equal those of `torch.randn` for the whole tensor.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.grid.rules import check_divides
from shardlab.layers.sharding import Sharding, mark

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


Rows = Callable[[range], Tensor]  # returns the values of a range of a parameter's rows, on the CPU


def read_elements(parameter: nn.Parameter, start: int, stop: int) -> Tensor:
    """Return elements `start` … `stop` − 1 of a flattened parameter; draws them if it is on meta.

    Raises:
        ValueError: the parameter is on meta and has no function that draws its rows.
    """
    if not parameter.is_meta:
        return parameter.detach().reshape(-1)[start:stop]
    rows: Rows | None = getattr(parameter, "rows", None)
    if rows is None:
        raise ValueError(
            f"a parameter of shape {tuple(parameter.shape)} is on meta and can't be drawn: make it "
            'by Init(device="meta"), or the model on its device'
        )
    width = math.prod(parameter.shape[1:])
    begin = start // width
    values = rows(range(begin, -(-stop // width))).reshape(-1)
    return values[start - begin * width : stop - begin * width]


@dataclass(frozen=True)
class Init:
    """The initial values, dtype and device of a model's parameters.

    Attributes:
        seed: with a parameter's name, it seeds the parameter's generator.
        std: the standard deviation of weights; biases start at zero.
        dtype: the parameters' dtype.
        device: the parameters' device; "meta" if FSDP draws the values.

    """

    seed: int = 0
    std: float = 0.02
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"

    def scaled_for_depth(self, layers: int) -> Init:
        """Return the same with std / √(2·layers).

        For the two linears of each layer that add to the residual stream, so that the stream's
        variance doesn't grow with depth (GPT-2, section 2.3; Megatron's
        `scaled_init_method_normal`).
        """
        return replace(self, std=self.std / math.sqrt(2 * layers))

    def replicated(self, name: str, shape: Sequence[int]) -> nn.Parameter:
        """Return the whole parameter `name`."""

        def rows(wanted: range) -> Tensor:
            values = keyed_normal(
                name, shape, seed=self.seed, std=self.std, dtype=self.dtype, rows=wanted
            )
            return values.view(-1, *shape[1:])

        return self._parameter(shape, rows)

    def sharded(
        self, name: str, shape: Sequence[int], *, axis: Axis, dim: int, padded: int | None = None
    ) -> nn.Parameter:
        """Return this rank's slice along `dim` of matrix `name`, marked with its `Sharding`.

        Args:
            name: the parameter's name.
            shape: the shape of the whole parameter, [rows, columns], without padding.
            axis: the axis over which it is cut.
            dim: the dim that is cut.
            padded: the length of `dim` with padding, zeros at the end; None for no padding.

        Raises:
            ValueError: the axis doesn't divide the dim.

        """
        sharding = Sharding(axis, dim, shape[dim], padded or shape[dim])
        check_divides(axis.name, axis.size, sharding.padded, f"elements of dim {dim} of {name}")
        length = sharding.padded // axis.size
        begin = axis.rank * length
        local = (length, shape[1]) if dim == 0 else (shape[0], length)

        def rows(wanted: range) -> Tensor:
            wanted_ranges = [wanted, range(begin, begin + length)]
            if dim == 0:
                wanted_ranges = [range(begin + wanted.start, begin + wanted.stop), range(shape[1])]
            sizes = zip(wanted_ranges, shape, strict=True)  # padding follows the end
            ranges = [range(min(cut.start, n), min(cut.stop, n)) for cut, n in sizes]
            values = torch.zeros(
                len(wanted_ranges[0]), len(wanted_ranges[1]), dtype=self.dtype, device="cpu"
            )
            values[: len(ranges[0]), : len(ranges[1])] = keyed_normal(
                name, shape, seed=self.seed, std=self.std, dtype=self.dtype,
                rows=ranges[0], columns=ranges[1],
            )  # fmt: skip
            return values

        return mark(self._parameter(local, rows), sharding)

    def constant(self, value: float, size: int, *, axis: Axis | None = None) -> nn.Parameter:
        """Return a vector of `size` equal values; with `axis`, this rank's slice, with its mark."""
        length = size // axis.size if axis else size
        vector = self._parameter(
            (length,), lambda rows: torch.full((len(rows),), value, dtype=self.dtype, device="cpu")
        )
        return mark(vector, Sharding(axis, 0, size, size)) if axis else vector

    def _parameter(self, shape: Sequence[int], rows: Rows) -> nn.Parameter:
        """Return the parameter with its values, or on meta with the function that draws them."""
        if torch.device(self.device).type != "meta":
            return nn.Parameter(rows(range(shape[0])).to(self.device))
        parameter = nn.Parameter(torch.empty(*shape, dtype=self.dtype, device="meta"))
        parameter.rows = rows  # type: ignore[attr-defined]
        return parameter


DEFAULT = Init()
