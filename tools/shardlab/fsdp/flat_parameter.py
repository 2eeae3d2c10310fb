"""A unit's parameters as one flat tensor: a persistent shard, and a full tensor that is gathered.

Dimension key: F elements of the flat parameter with padding, f = F / n those of one rank's shard.

`shard_f` is the only persistent copy: an `nn.Parameter` of the model's dtype that any torch
optimizer updates, one tensor for a whole unit. `full_F` is gathered and freed again. The module's
own parameters ("leaves") are always views of it. Unsharding is therefore one all-gather without any
other copy, and resharding frees one storage.

Three problems, and their solutions:
- Autograd saves views of `full_F` beyond forward (a matmul saves the transposed weight). They hold
  its storage, so the storage must stay the same object. Only its *memory* is freed and allocated
  again, by `untyped_storage().resize_`, and the saved views are valid again in backward.
- A gather writes to `full_F` between forward and backward, so autograd would refuse the tensors
  that it saved. A view made by `leaf.data = …` has a version counter of its own, so autograd
  doesn't notice. `changed` does this check instead: it compares the shard's version counter with
  that of the last gather.
- A freed leaf must not be read. Meanwhile a `ShardedParameter` is in its place.

PyTorch: `FlatParamHandle` (fsdp/_flat_param.py), whose parameters are autograd views of the flat
one, so that backward writes a whole flat gradient and slices it; FSDP2 shards every parameter by
itself (`FSDPParam`) and copies all of them in and out around each collective.

`FlatLayout` has the positions of parameters, and each rank's pieces of them: arithmetic only.

    flat   | weight     |gap| bias |      tail      |      F elements = n ranks × f
    ranks  | 0          | 1          | 2            |

Each parameter begins at a multiple of `ALIGNMENT` elements (16 bytes of a 2-byte dtype), because
CUDA kernels read aligned vectors and a matmul on an unaligned address is slower. The end is padded
so that n ranks get equal pieces. Positions don't depend on n; only the tail does.
As in PyTorch (`_get_shard`, fsdp/_flat_param.py), a rank's last piece is padded. Gaps and tail have
zeros, whose gradient is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shardlab.comm import Axis, Pending
from shardlab.layers.init import read_elements

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


class FlatParameter:
    """Parameters of one unit with one dtype that train together, or are frozen together.

    Args:
        name: the flat parameter's name, for errors.
        named_parameters: the parameters and their full names; they become views of `full_F`.
        axis: the axis over which it is sharded (n ranks).
        dtype: the dtype of the computation.
        device: the device for parameters on meta, of which this rank draws only its shard.

    Attributes:
        leaves: the parameters.
        shard_f: this rank's shard [f], in the parameters' dtype.
        full_F: the full tensor [F] in `dtype`; without memory while sharded.

    Raises:
        ValueError: the parameters' devices differ.
    """

    def __init__(
        self, name: str, named_parameters: Sequence[tuple[str, nn.Parameter]], axis: Axis,
        dtype: torch.dtype, device: torch.device | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.axis = axis
        self.leaves = [leaf for _, leaf in named_parameters]
        self.layout = FlatLayout.of(
            {name: leaf.shape for name, leaf in named_parameters}, axis.size
        )
        self._places = [
            (shape, torch.empty(shape, device="meta").stride(), offset)
            for shape, offset in zip(self.layout.shapes, self.layout.offsets, strict=True)
        ]
        if devices := {str(leaf.device) for leaf in self.leaves} - {str(self.leaves[0].device)}:
            raise ValueError(
                f"{self.name} lies flat in one tensor, so its parameters share one device: some "
                f"are on {self.leaves[0].device}, others on {', '.join(sorted(devices))}"
            )
        shard_f = self._make_shard(self.leaves[0].device if device is None else device)
        self._trains = self.leaves[0].requires_grad
        self.shard_f = nn.Parameter(shard_f, self._trains)
        # On one rank that computes in the parameters' dtype, the shard is the full tensor.
        self.is_whole = axis.size == 1 and dtype == shard_f.dtype
        self.full_F = shard_f
        if not self.is_whole:
            self.full_F = torch.empty(self.layout.numel, dtype=dtype, device=shard_f.device)
        self._bytes = self.full_F.nbytes
        self._pending: Pending | None = None
        self._gathered_version = -1
        for number, leaf in enumerate(self.leaves):
            leaf.grad = None
            _replace_by_view(leaf, self.view(self.full_F, number))
        self.free()

    @property
    def version(self) -> int:
        """The shard's version counter, which counts writes.

        torch's fused optimizers don't move the counter (seen in 2.13), nor do writes to `.data`.
        """
        return self.shard_f._version

    @property
    def changed(self) -> bool:
        """Whether the shard was written to since the last gather."""
        return not self.is_whole and self.version != self._gathered_version

    def view(self, flat_F: Tensor, number: int) -> Tensor:
        """Return the view of parameter `number` in `flat_F`, in the parameter's shape."""
        return flat_F.as_strided(*self._places[number])

    def start_gather(self) -> None:
        """Allocate the memory of `full_F` and start the all-gather."""
        self._gathered_version = self.version
        if self.is_whole:
            return
        self.full_F.untyped_storage().resize_(self._bytes)
        local_f = self.shard_f.detach().to(self.full_F.dtype)
        self.axis.agree(f"gather {self.name}")
        self._pending = self.axis.start("all_gather", local_f, out=self.full_F)

    def finish_gather(self) -> None:
        """Wait for the all-gather; set the leaves' `requires_grad` to the shard's.

        Raises:
            RuntimeError: the shard was frozen at construction, and is not frozen now.
        """
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        if self.leaves[0].requires_grad != self.shard_f.requires_grad:
            if not self._trains:
                raise RuntimeError(
                    f"{self.name} was frozen when FSDP was made and is not now: nothing would "
                    "reduce its gradient; make FSDP first, and freeze the shard after"
                )
            for leaf in self.leaves:
                leaf.requires_grad_(self.shard_f.requires_grad)

    def free(self) -> None:
        """Free the memory of `full_F`; its views, autograd's too, must not be read then."""
        if not self.is_whole:
            self.full_F.untyped_storage().resize_(0)

    def _make_shard(self, device: torch.device) -> Tensor:
        """Return this rank's shard [f] of the leaves; draws the values of leaves on meta."""
        shard_f = torch.zeros(self.layout.shard_numel, dtype=self.leaves[0].dtype, device=device)
        for number, start, stop, offset in self.layout.pieces(self.axis.rank):
            shard_f[start:stop] = read_elements(self.leaves[number], offset, offset + stop - start)
        return shard_f


def _replace_by_view(leaf: nn.Parameter, view: Tensor) -> None:
    """Make `leaf` a view; a leaf on meta becomes another tensor, with the same marks."""
    if leaf.is_meta:
        real = nn.Parameter(view.new_empty(0), leaf.requires_grad)
        real.__dict__.update({name: mark for name, mark in leaf.__dict__.items() if name != "rows"})
        # All references to the leaf, also those of tied modules, stay valid.
        torch.utils.swap_tensors(leaf, real)  # type: ignore[no-untyped-call]
    leaf.data = view
