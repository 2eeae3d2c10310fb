"""Dropout, and which ranks must drop alike.

- Where the tensor ranks hold the same activation (replicated), they must draw the same mask, or
  what should be equal on all of them no longer is, and training diverges in silence.
- Where each holds its own part (heads, features, and every row under sequence parallelism), each
  must draw its own mask, or the parts drop in step.

So a mask comes from a generator keyed by (seed, place in the model, number of the mask), and by the
tensor rank too where the activation is sharded. Data ranks see other tokens, and should drop other
elements: where a model was given no seed for dropout, StepGradients and FSDP add the data rank to
the key (`number_replicas`). Megatron forks its CUDA RNG between two such states ("default" and
"model-parallel-rng" in megatron/core/tensor_parallel/random.py); there data-parallel replicas share
their seeds unless `--data-parallel-random-init` is given.

Activation checkpointing runs a forward twice and must drop the same elements both times: a
recomputation takes the number of the mask that its forward drew (`Kept`).

A saved checkpoint keeps one number, how many masks were drawn, and any grid goes on from there. The
state of a generator would say nothing to another grid; and a run that began at the seed again would
drop what it dropped in its first steps.

Attention's mask is drawn inside the fused kernel, or all weights would have to be held for it.
Such a kernel draws from torch's own generator alone; so that one stands at the mask's key meanwhile
(`inside`), as Megatron hands Transformer Engine a state to fork (`get_rng_state_tracker` in
megatron/core/extensions/transformer_engine.py). Which elements a key drops is then the kernel's
affair: on a GPU another dtype may take another kernel, and drop others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.layers.draw import key
from shardlab.layers.engine import Kept
from shardlab.layers.ops import uncompiled


class Dropout(nn.Module):
    """Zero each element with probability p, and scale the others by 1 / (1 − p); only in training.

    Args:
        p: probability, 0 ≤ p < 1.
        axis: the tensor axis.
        sharded: whether each rank of the axis holds its own part of the activation.
        name: of this place in the whole model.
        seed: of the run; add the data rank to it.

    Attributes:
        drawn: how many masks so far.
        replica: number of the data rank, which joins the key; None where the caller chose the seed.

    Raises:
        ValueError: p is no such probability.

    """

    def __init__(self, p: float, *, axis: Axis, sharded: bool, name: str, seed: int) -> None:
        """Note the key; the generator is made on the first activation's device."""
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout p = {p} of {name}: expected 0 <= p < 1")
        self.p = p
        self.drawn = 0
        self.replica: int | None = None
        self._key = seed, name, axis.rank if sharded else "replicated"
        self._generator: torch.Generator | None = None
        self._numbers = Kept[int](name)

    def forward(self, x: Tensor) -> Tensor:
        """Return x with elements dropped.

        Raises:
            RuntimeError: a recomputation of a forward that was not seen.

        """
        if not self.training or self.p == 0:
            return x
        return x * self._mask(x)

    @uncompiled
    def inside(self, kernel: Callable[..., Tensor], *given: Tensor) -> Tensor:
        """Return kernel(*given, dropout_p=p), which draws this place's next mask itself.

        Args:
            kernel: draws from torch's own generator of the device of `given`, in this call alone.
            given: tensors.

        Raises:
            RuntimeError: as forward's.

        """
        number = self._numbers(self._next)
        lent = _torchs_own(given[0].device)
        stood = lent.get_state()
        lent.manual_seed(self._seed(number))
        try:
            return kernel(*given, dropout_p=self.p)
        finally:
            lent.set_state(stood)

    @uncompiled
    def _mask(self, x: Tensor) -> Tensor:
        if self._generator is None:
            self._generator = torch.Generator(x.device)
        self._generator.manual_seed(self._seed(self._numbers(self._next)))
        keep = torch.empty_like(x).bernoulli_(1 - self.p, generator=self._generator)
        return keep.div_(1 - self.p)

    def _seed(self, number: int) -> int:
        """Return the generator's seed for a mask; the first data rank's is that of one process."""
        return key(*self._key, *([f"replica {self.replica}"] if self.replica else []), number)

    def _next(self) -> int:
        self.drawn += 1
        return self.drawn - 1


def dropouts_of(model: nn.Module) -> list[Dropout]:
    """Return the dropouts in a model, in the model's order."""
    return [module for module in model.modules() if isinstance(module, Dropout)]


def number_replicas(model: nn.Module, rank: int) -> None:
    """Let data rank `rank` draw masks of its own where the caller of the model chose no seed."""
    for dropout in dropouts_of(model):
        if dropout.replica is not None:
            dropout.replica = rank


def _torchs_own(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    own: torch.Generator = torch.get_device_module(device).default_generators[device.index]
    return own
