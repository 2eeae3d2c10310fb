"""The positions of parameters in a flat parameter, and each rank's pieces of them: arithmetic only.

    flat   | weight     |gap| bias |      tail      |      F elements = n ranks × f
    ranks  | 0          | 1          | 2            |

Each parameter begins at a multiple of `ALIGNMENT` elements (16 bytes of a 2-byte dtype), because
CUDA kernels read aligned vectors and a matmul on an unaligned address is slower. The end is padded
so that n ranks get equal pieces. Positions don't depend on n; only the tail does.

PyTorch: `FlatParamHandle._init_flat_param_and_metadata` and `_get_shard` (fsdp/_flat_param.py). As
there, a rank's last piece is padded. Gaps and tail have zeros, whose gradient is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

ALIGNMENT = 8  # elements


class ShardPiece(NamedTuple):
    """The part of one parameter that is in one rank's shard.

    Attributes:
        parameter: the parameter's number in the layout.
        start, stop: the part's range in the shard, in elements.
        offset: the part's begin in the flattened parameter.
    """

    parameter: int
    start: int
    stop: int
    offset: int


@dataclass(frozen=True)
class FlatLayout:
    """The positions of some parameters in one flat parameter over an axis of `size` ranks.

    Attributes:
        names: the parameters' names.
        shapes: the parameters' shapes.
        offsets: the parameters' begins, in elements.
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
            end = _round_up(end + prod(shape), ALIGNMENT)
        all_shapes = tuple(tuple(shape) for shape in shapes.values())
        return cls(tuple(shapes), all_shapes, tuple(offsets), size, _round_up(max(end, 1), size))

    @property
    def shard_numel(self) -> int:
        """The number of elements of each rank's shard (f)."""
        return self.numel // self.size

    @cached_property
    def gaps(self) -> list[tuple[int, int]]:
        """The ranges (start, stop) without a parameter."""
        starts = [*self.offsets, self.numel]
        ends = [0] + [at + prod(s) for at, s in zip(self.offsets, self.shapes, strict=True)]
        return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]

    def pieces(self, rank: int) -> Iterator[ShardPiece]:
        """Yield rank `rank`'s pieces, one for each parameter of which it has some elements."""
        low, high = rank * self.shard_numel, (rank + 1) * self.shard_numel
        for index, (at, shape) in enumerate(zip(self.offsets, self.shapes, strict=True)):
            start, stop = max(at, low), min(at + prod(shape), high)
            if start < stop:
                yield ShardPiece(index, start - low, stop - low, start - at)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
