"""Yours to write: FSDP of one unit. `python grade.py unit` says what is missing.

Ranks talk with `torch.distributed` over the default group, which is there already.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

# Before you run it, for a module of 77 fp64 numbers: how many bytes does a rank send in __init__,
# and hold after it? How many does forward gather, and hold of them afterwards? And how many does
# backward gather, reduce-scatter and hold? The grader shows what it counted beside your numbers.
PREDICTED = {"Unit.__init__": (None, None), "forward": (None, None), "backward": (None, None, None)}


class Gather(torch.autograd.Function):
    """All ranks' pieces, one after another; with n ranks, [s] becomes [n·s]."""

    @staticmethod
    def forward(ctx: Any, shard: Tensor) -> Tensor:
        """All-gather [s] to [n·s]."""
        raise NotImplementedError("Gather.forward: read foreach_all_gather")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Reduce-scatter [n·s] to [s]: the mean over ranks, of this rank's piece."""
        raise NotImplementedError("Gather.backward: read foreach_reduce")


class Unit:
    """A module of whose parameters a rank holds one piece, but while it computes with them.

    All parameters, flattened one after another and padded with zeros to a multiple of the ranks,
    are cut into as many equal pieces; rank r keeps piece r.

    Attributes:
        shard: this rank's piece, which is what an optimizer is given.
    """

    shard: nn.Parameter

    def __init__(self, module: nn.Module) -> None:
        """Cut. From here on nobody holds the module's own parameters, nor the whole flat one.

        `module.to("meta")` leaves a module its shapes and takes its numbers.
        """
        raise NotImplementedError("Unit.__init__: read _init_sharded_param")

    def forward(self, x: Tensor) -> Tensor:
        """Gather, and return what the module makes of `x`; don't hold what was gathered.

        `torch.func.functional_call` runs a module with given parameters. Autograd saves weights
        for backward, and with them all of the gathered memory; `saved_tensors_hooks` of
        `torch.autograd.graph` puts something smaller in their place: gather once more in backward.
        """
        raise NotImplementedError("Unit.forward: read reshard, pre_backward and free_storage")
