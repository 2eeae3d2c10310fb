"""Initial weights: a whole model's, drawn from generators keyed by name; a rank draws its slice.

So every grid, dtype and device starts from the same model, and no rank holds more of it than its
own (draw.py). A layer that drew its slice from a seed of its own would start from another model on
each tensor axis: n slices from one seed are n equal slices, and n seeds give another matrix for
every n. Megatron's CPU initialisation draws whole and slices (`_initialize_affine_weight_cpu` in
megatron/core/tensor_parallel/layers.py), from the global generator, so the order in which layers
are made matters there; its GPU initialisation draws each slice from a seed of its own.

With `device="meta"` nothing is drawn: a parameter has a shape and knows its rows, and FSDP draws of
each what its shard holds, so that a model may be larger than any device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.grid.rules import check_divides
from shardlab.layers.draw import draw
from shardlab.layers.sharding import Sharding, mark

Rows = Callable[[range], Tensor]  # the values of some of a parameter's rows, on the CPU


def run_of(parameter: nn.Parameter, start: int, stop: int) -> Tensor:
    """Return elements `start` … `stop` − 1 of a parameter, flat; drawn now if it is on meta.

    Raises:
        ValueError: it is on meta, and nobody knows its values.
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
    found = rows(range(begin, -(-stop // width))).reshape(-1)
    return found[start - begin * width : stop - begin * width]


@dataclass(frozen=True)
class Init:
    """How a model's parameters start, and where they live.

    Attributes:
        seed: with a parameter's name, the key of its draw.
        std: standard deviation of weights; biases start at zero.
        dtype: of parameters.
        device: of parameters; "meta" for those that FSDP draws.

    """

    seed: int = 0
    std: float = 0.02
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"

    def narrower(self, layers: int) -> Init:
        """Return the same with std / √(2·layers).

        For what is added to the residual stream, twice a layer, so that its variance does not grow
        with depth (GPT-2, section 2.3; Megatron's `scaled_init_method_normal`).
        """
        return replace(self, std=self.std / math.sqrt(2 * layers))

    def replicated(self, name: str, shape: Sequence[int]) -> nn.Parameter:
        """Return the whole parameter `name`."""

        def rows(wanted: range) -> Tensor:
            found = draw(name, shape, seed=self.seed, std=self.std, dtype=self.dtype, rows=wanted)
            return found.view(-1, *shape[1:])

        return self._parameter(shape, rows)

    def sharded(
        self, name: str, shape: Sequence[int], *, axis: Axis, dim: int, padded: int | None = None
    ) -> nn.Parameter:
        """Return this rank's slice along `dim` of matrix `name`, marked with its `Sharding`.

        Args:
            name: of the parameter.
            shape: of the whole parameter, [rows, columns], without padding.
            axis: what it is cut over.
            dim: the dim that is cut.
            padded: length of `dim` with padding, zeros at the end; None for no padding.

        Raises:
            ValueError: the axis doesn't divide the dim.

        """
        sharding = Sharding(axis, dim, shape[dim], padded or shape[dim])
        check_divides(axis.name, axis.size, sharding.padded, f"elements of dim {dim} of {name}")
        own = sharding.padded // axis.size
        begin = axis.rank * own
        local = (own, shape[1]) if dim == 0 else (shape[0], own)

        def rows(wanted: range) -> Tensor:
            cuts = [wanted, range(begin, begin + own)]
            if dim == 0:
                cuts = [range(begin + wanted.start, begin + wanted.stop), range(shape[1])]
            sizes = zip(cuts, shape, strict=True)  # past the end lies padding
            there = [range(min(cut.start, n), min(cut.stop, n)) for cut, n in sizes]
            values = torch.zeros(len(cuts[0]), len(cuts[1]), dtype=self.dtype, device="cpu")
            values[: len(there[0]), : len(there[1])] = draw(
                name, shape, seed=self.seed, std=self.std, dtype=self.dtype,
                rows=there[0], columns=there[1],
            )  # fmt: skip
            return values

        return mark(self._parameter(local, rows), sharding)

    def constant(self, value: float, size: int, *, axis: Axis | None = None) -> nn.Parameter:
        """Return a vector of `size` equal values; with an `axis` this rank's slice, marked."""
        length = size // axis.size if axis else size
        vector = self._parameter(
            (length,), lambda rows: torch.full((len(rows),), value, dtype=self.dtype, device="cpu")
        )
        return mark(vector, Sharding(axis, 0, size, size)) if axis else vector

    def _parameter(self, shape: Sequence[int], rows: Rows) -> nn.Parameter:
        """Return the parameter with its values, or on meta with where to get them."""
        if torch.device(self.device).type != "meta":
            return nn.Parameter(rows(range(shape[0])).to(self.device))
        parameter = nn.Parameter(torch.empty(*shape, dtype=self.dtype, device="meta"))
        parameter.rows = rows  # type: ignore[attr-defined]
        return parameter


DEFAULT = Init()
