"""Dropout, with the same mask on the ranks that need the same, and different masks on the others.

- If the tensor ranks hold the same activation (replicated), they must draw the same mask. Otherwise
  the activation differs between them and training diverges without an error.
- If each rank holds its own part (heads, features, or rows under sequence parallelism), each must
  draw its own mask. Otherwise all parts drop the same elements.

A mask's generator is therefore seeded by (seed, the dropout's name in the model, the mask's
number), and by the tensor rank too if the activation is sharded. Data ranks see different tokens
and should drop different elements. If the caller gave the model no seed for dropout, StepGradients
and FSDP add the data rank to the seed (`number_replicas`). Megatron forks its CUDA RNG between two
such states ("default" and "model-parallel-rng" in megatron/core/tensor_parallel/random.py). There
data-parallel replicas share their seeds unless `--data-parallel-random-init` is given.

Activation checkpointing runs a forward twice and must drop the same elements both times. A
recomputation therefore uses the number of the mask that its forward drew (`RecomputeCache`).

A saved checkpoint stores one number, how many masks were drawn, from which any grid continues.
Another grid couldn't use the state of a generator. A run that restarted at the seed would drop the
same elements as in its first steps.

Attention draws its mask inside the fused kernel, since a mask made outside would need all attention
weights in memory. Such a kernel draws only from torch's default generator. `run_fused` therefore
seeds that generator for the mask and restores its state afterwards, as Megatron gives Transformer
Engine a state to fork (`get_rng_state_tracker` in megatron/core/extensions/transformer_engine.py).
The kernel decides which elements a seed drops: on a GPU another dtype may use another kernel, which
drops other elements.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.layers.engine import RecomputeCache
from shardlab.layers.init import seed_from
from shardlab.layers.ops import uncompiled


class Dropout(nn.Module):
    """Zero each element with probability p, and scale the others by 1 / (1 − p); only in training.

    Args:
        p: the probability, 0 ≤ p < 1.
        axis: the tensor axis.
        sharded: whether each rank of the axis holds its own part of the activation.
        name: the name of this dropout in the whole model.
        seed: the run's seed; add the data rank to it.

    Attributes:
        masks_drawn: the number of masks drawn so far.
        replica: the data rank, which becomes part of the seed; None if the caller chose the seed.

    Raises:
        ValueError: p is out of range.

    """

    def __init__(self, p: float, *, axis: Axis, sharded: bool, name: str, seed: int) -> None:
        """Store the seed; the generator is made on the first activation's device."""
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout p = {p} of {name}: expected 0 <= p < 1")
        self.p = p
        self.masks_drawn = 0
        self.replica: int | None = None
        self._key = seed, name, axis.rank if sharded else "replicated"
        self._generator: torch.Generator | None = None
        self._numbers = RecomputeCache[int](name)

    def forward(self, x: Tensor) -> Tensor:
        """Return x with elements dropped.

        Raises:
            RuntimeError: a recomputation of a forward that was not seen.

        """
        if not self.training or self.p == 0:
            return x
        return x * self._mask(x)

    @uncompiled
    def run_fused(self, kernel: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Return kernel(*tensors, dropout_p=p), which draws this dropout's next mask itself.

        Args:
            kernel: a function that draws from torch's default generator of the tensors' device.
            tensors: the kernel's arguments.

        Raises:
            RuntimeError: as forward's.

        """
        number = self._numbers(self._next)
        generator = _torch_generator(tensors[0].device)
        state = generator.get_state()
        generator.manual_seed(self._seed(number))
        try:
            return kernel(*tensors, dropout_p=self.p)
        finally:
            generator.set_state(state)

    @uncompiled
    def _mask(self, x: Tensor) -> Tensor:
        if self._generator is None:
            self._generator = torch.Generator(x.device)
        self._generator.manual_seed(self._seed(self._numbers(self._next)))
        keep = torch.empty_like(x).bernoulli_(1 - self.p, generator=self._generator)
        return keep.div_(1 - self.p)

    def _seed(self, number: int) -> int:
        """Return the seed of a mask; data rank 0 uses the same seed as a single process."""
        return seed_from(*self._key, *([f"replica {self.replica}"] if self.replica else []), number)

    def _next(self) -> int:
        self.masks_drawn += 1
        return self.masks_drawn - 1


def dropouts_of(model: nn.Module) -> list[Dropout]:
    """Return the dropout modules of a model, in the model's order."""
    return [module for module in model.modules() if isinstance(module, Dropout)]


def number_replicas(model: nn.Module, rank: int) -> None:
    """Let data rank `rank` draw its own masks, unless the caller gave the model a dropout seed."""
    for dropout in dropouts_of(model):
        if dropout.replica is not None:
            dropout.replica = rank


def _torch_generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    generator: torch.Generator = torch.get_device_module(device).default_generators[device.index]
    return generator
