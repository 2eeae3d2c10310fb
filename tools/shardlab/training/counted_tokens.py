"""The weights of routers' auxiliary losses if losses are sums over counted tokens.

`StepGradients(reduction="tokens")` divides all gradients by the number of counted tokens (targets
other than −100). An auxiliary loss is a mean, so it must first be multiplied by its micro-batch's
number of counted tokens. Only the last stage sees targets, so the caller gives the numbers before
the step's first forward (`StepGradients.begin`). Without them a router multiplies by the number of
tokens that aren't padding, and a step with another number of counted tokens raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from shardlab.grid.grid import Grid
from shardlab.layers.engine import inside_backward


class CountedTokens:
    """Gives the routers the number of counted tokens of each micro-batch of a step.

    Args:
        models: this rank's pieces of the model; each runs the micro-batches in their order.
        grid: tensor × context × pipeline × data.
        microbatches: the number of micro-batches of a step.
        device: the model's device.
    """

    def __init__(
        self, models: Sequence[nn.Module], grid: Grid, microbatches: int, device: torch.device
    ) -> None:
        """Register a hook on each piece; every rank must call this."""
        self._grid, self._microbatches, self._device = grid, microbatches, device
        self._whole_model = grid.axis("tensor", "pipeline")
        self._routers: list[list[Any]] = [
            [module for module in model.modules() if hasattr(module, "counted")] for model in models
        ]
        local = torch.tensor([float(any(self._routers))], device=device)
        self._weighs = bool(self._whole_model.all_reduce(local, op="max"))
        self._counts: list[tuple[Tensor, Tensor]] = []  # of each micro-batch, once known
        self._total: Tensor | None = None  # of this rank
        self._forwards = [0] * len(models)
        for number, model in enumerate(models):
            model.register_forward_pre_hook(partial(self._announce, number))

    def begin(self, tokens: Sequence[int] | Tensor) -> None:
        """Set the counted tokens of this rank's micro-batches; every rank must call this.

        Raises:
            ValueError: there isn't one number for each micro-batch.
        """
        local_M = torch.as_tensor(tokens, dtype=torch.float64, device=self._device).reshape(-1)
        if len(local_M) != self._microbatches:
            raise ValueError(
                f"begin(tokens=…) got {len(local_M)} numbers for {self._microbatches} "
                "micro-batches: give the counted tokens of each"
            )
        self.forget()
        of_sequences_M = self._grid.context.all_reduce(local_M)
        of_replicas_M = self._grid.data.all_reduce(of_sequences_M)
        self._counts = [*zip(of_sequences_M.unbind(), of_replicas_M.unbind(), strict=True)]
        self._total = local_M.sum()

    def total(self, tokens: int | Tensor | None) -> int | Tensor | None:
        """Return this rank's counted tokens: those of `begin`, or `tokens` if the routers agree.

        Raises:
            ValueError: on every rank: `tokens` was given in addition to `begin`; or without
                `begin`, routers weighted their losses by another number on some rank.
        """
        if self._total is not None and tokens is not None:
            raise ValueError("begin(tokens=…) has the tokens of this step: call finish() without")
        if self._total is None and tokens is not None and self._weighs:
            self._refuse_other_weights(tokens)
        return tokens if self._total is None else self._total

    def forget(self) -> None:
        """Reset the step's tokens, also those of a step that is abandoned."""
        self._counts, self._total = [], None
        self._forwards = [0] * len(self._forwards)
        for router in (router for routers in self._routers for router in routers):
            router.counted = None

    def _announce(self, number: int, *_: Any) -> None:
        """Set the routers' counted tokens before a forward of their piece."""
        if not self._counts or not torch.is_grad_enabled() or inside_backward():
            return
        if self._forwards[number] == len(self._counts):
            raise RuntimeError(
                f"a forward after the {len(self._counts)} micro-batches of begin(tokens=…): call "
                "finish(), and begin() for the next step"
            )
        for router in self._routers[number]:
            router.counted = self._counts[self._forwards[number]]
        self._forwards[number] += 1

    def _refuse_other_weights(self, tokens: int | Tensor) -> None:
        local = torch.as_tensor([tokens], dtype=torch.float64, device=self._device)
        counted = self._grid.context.all_reduce(local)[0]
        weights = [router.weights for routers in self._routers for router in routers]
        means = [
            torch.stack([torch.as_tensor(w, dtype=torch.float64, device=self._device) for w in of])
            for of in weights
            if of
        ]
        wrong = torch.zeros(1, dtype=torch.float64, device=self._device)
        for of_router in means:
            # A router that several layers share has several weights for each micro-batch.
            wrong += ((of_router.mean() * self._microbatches - counted).abs() > 0.5).double()
        wrong = self._whole_model.all_reduce(self._grid.replicas.all_reduce(wrong))
        if bool(wrong):
            raise ValueError(
                "routers weighed their auxiliary losses by all tokens that aren't padding, and "
                "finish(tokens=…) counts others: call begin(tokens=[…]) with the counted tokens of "
                "each micro-batch before the step's first forward, and finish() without"
            )
