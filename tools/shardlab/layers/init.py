"""Initial weights: drawn whole from a generator keyed by name, then sliced.

So every grid, dtype and device starts from the same model, at the price of one whole fp64 tensor at
a time. A layer that drew only its own slice would start from another model on each tensor axis: n
slices from one seed are n equal slices, and n seeds give another matrix for every n. Megatron's CPU
initialisation draws whole and slices as well (`_initialize_affine_weight_cpu` in
megatron/core/tensor_parallel/layers.py), but from the global generator, so the order in which
layers are made matters there; its GPU initialisation draws each slice from a seed of its own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.layers.ops import own_slice
from shardlab.layers.sharding import Sharding, mark


def draw(
    name: str,
    shape: Sequence[int],
    *,
    seed: int,
    std: float,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Return the whole tensor called `name`: normal, mean 0, alike whatever the dtype and device.

    Args:
        name: the parameter's name in the whole model; with `seed` it is the generator's key.
        shape: of the whole tensor.
        seed: one number for the model.
        std: standard deviation.
        dtype: what the fp64 draw is rounded to.
        device: where the draw, always made on the CPU, is copied to.

    """
    generator = torch.Generator().manual_seed(key(seed, name))
    whole = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return whole.mul_(std).to(dtype=dtype, device=device)


def shard(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return this rank's slice of the whole `x`, contiguous and with storage of its own.

    Raises:
        ValueError: the axis does not divide `dim`.

    """
    return own_slice(x, axis, dim).clone(memory_format=torch.contiguous_format)


def key(*parts: object) -> int:
    """Return a 63-bit seed for these parts; the same in every process and Python version."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True)
class Init:
    """How a model's parameters start, and where they live.

    Attributes:
        seed: with a parameter's name, the key of its draw.
        std: standard deviation of weights; biases start at zero.
        dtype: of parameters.
        device: of parameters.

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
        whole = draw(
            name, shape, seed=self.seed, std=self.std, dtype=self.dtype, device=self.device
        )
        return nn.Parameter(whole)

    def sharded(
        self, name: str, shape: Sequence[int], *, axis: Axis, dim: int, padded: int | None = None
    ) -> nn.Parameter:
        """Return this rank's slice along `dim` of parameter `name`, marked with its `Sharding`.

        Args:
            name: of the parameter.
            shape: of the whole parameter, without padding.
            axis: what it is cut over.
            dim: the dim that is cut.
            padded: length of `dim` with padding, zeros at the end; None for no padding.

        """
        whole = draw(name, shape, seed=self.seed, std=self.std, dtype=self.dtype)
        sharding = Sharding(axis, dim, shape[dim], padded or shape[dim])
        return mark(nn.Parameter(sharding.local(whole).to(self.device)), sharding)

    def constant(self, value: float, size: int, *, axis: Axis | None = None) -> nn.Parameter:
        """Return a vector of `size` equal values; with an `axis` this rank's slice, marked."""
        length = size // axis.size if axis else size
        vector = nn.Parameter(torch.full((length,), value, dtype=self.dtype, device=self.device))
        return mark(vector, Sharding(axis, 0, size, size)) if axis else vector


DEFAULT = Init()
