"""Where each parameter lies in a flat parameter, and what of it each rank holds: arithmetic only.

    flat   | weight     |gap| bias |      tail      |      F elements = n ranks × f
    ranks  | 0          | 1          | 2            |

Parameters follow one another, each beginning at a multiple of `ALIGNMENT` elements (16 bytes of a
2-byte dtype: CUDA kernels read aligned vectors, a matmul on an odd address is slower). The end is
padded so that n ranks get equal pieces. Positions don't depend on n, only the tail does.

PyTorch: `FlatParamHandle._init_flat_param_and_metadata` and `_get_shard` (fsdp/_flat_param.py).
There a rank's last piece is padded; here too, and gaps and tail hold zeros whose gradient is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

ALIGNMENT = 8  # elements


class ShardPiece(NamedTuple):
    """The part of one parameter that lies in one rank's shard.

    Attributes:
        parameter: its number in the layout.
        start, stop: where it lies in the shard, in elements.
        offset: where it begins in the parameter, flattened.
    """

    parameter: int
    start: int
    stop: int
    offset: int


@dataclass(frozen=True)
class FlatLayout:
    """The places of some parameters in one flat parameter over an axis of `size` ranks.

    Attributes:
        names, shapes, offsets: of each parameter; an offset is in elements.
        size: ranks along the axis (n).
        numel: elements with gaps and tail (F), a multiple of n.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    size: int
    numel: int

    @classmethod
    def of(cls, shapes: Mapping[str, Sequence[int]], size: int) -> FlatLayout:
        """Lay `shapes` out in their order for an axis of `size` ranks."""
        offsets, end = [], 0
        for shape in shapes.values():
            offsets.append(end)
            end = _up(end + prod(shape), ALIGNMENT)
        own = tuple(tuple(shape) for shape in shapes.values())
        return cls(tuple(shapes), own, tuple(offsets), size, _up(max(end, 1), size))

    @property
    def shard_numel(self) -> int:
        """Elements that each rank holds (f)."""
        return self.numel // self.size

    @cached_property
    def gaps(self) -> list[tuple[int, int]]:
        """Where no parameter lies, as (start, stop)."""
        starts = [*self.offsets, self.numel]
        ends = [0] + [at + prod(s) for at, s in zip(self.offsets, self.shapes, strict=True)]
        return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]

    def pieces(self, rank: int) -> Iterator[ShardPiece]:
        """Yield what rank `rank` holds of each parameter, leaving out those it holds nothing of."""
        low, high = rank * self.shard_numel, (rank + 1) * self.shard_numel
        for index, (at, shape) in enumerate(zip(self.offsets, self.shapes, strict=True)):
            start, stop = max(at, low), min(at + prod(shape), high)
            if start < stop:
                yield ShardPiece(index, start - low, stop - low, start - at)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
