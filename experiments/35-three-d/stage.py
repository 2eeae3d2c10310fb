"""A rank's part of lab 01's model: its pieces, and what completes their gradients.

Either each data rank has a copy, or they share one (--fsdp). `TrainedStage` gives what a schedule
runs, what an optimizer steps on, and what completes the gradients of a step, clipped.
"""

from functools import partial
from typing import Any

import torch
from settings import Settings
from torch import nn
from torch.optim import Optimizer

from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid


def make_pieces(settings: Settings, grid: Grid, device: torch.device) -> list[GPT]:
    """Draw this stage's pieces of the model: with p stages, pieces s, s + p … of all.

    Under FSDP they are on meta: no rank ever has the whole.
    """
    stages, experts, context = grid.pipeline.size, None, None
    if settings.experts:
        from shardlab.experts.layer import ExpertAxes

        experts = ExpertAxes.of(grid)
    if settings.cp > 1:
        from shardlab.context.parallel import ContextParallel

        context = ContextParallel(grid.context, settings.cp_kind)
    pieces = [
        GPT(
            settings.config,
            tensor=grid.tensor,
            sequence_parallel=settings.sequence_parallel,
            seed=settings.seed,
            # Other sequences, other masks: else data ranks would drop in step.
            dropout_seed=settings.seed * settings.dp + grid.data.rank,
            stage=chunk * stages + grid.pipeline.rank,
            stages=stages * settings.chunks,
            device="meta" if settings.fsdp else device,
            experts=experts,
            context=context,
        )
        for chunk in range(settings.chunks)
    ]
    for piece in pieces:
        _adapt(piece, settings)
    return pieces


def _adapt(piece: GPT, settings: Settings) -> None:
    """Put in what costs no change of the model."""
    if settings.fused:
        from shardlab.layers.matmul import fuse

        # Into main_grad linears can add what they make at once. FSDP has buffers of its own, and
        # zb-h1 makes the weights' gradients after backward.
        separate_buffers = settings.fsdp or settings.schedule == "zb-h1"
        fuse(piece, gradient_accumulation=settings.masters and not separate_buffers)
    if settings.recompute:
        from torch.utils.checkpoint import checkpoint

        block: Any
        for block in piece.layers.values():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)


class TrainedStage:
    """What trains this rank's pieces: an optimizer's parameters, and the step's gradients.

    Each data rank holds the stage whole, or with --fsdp they share one.

    Attributes:
        modules: what a schedule runs: the pieces, or the piece in FSDP.
        parameters: what an optimizer steps on: the pieces' own, their fp32 masters where the model
            is in bf16, or this rank's flat shards.
        gradients: completes the gradients of a step, whichever way.
    """

    def __init__(
        self, pieces: list[GPT], grid: Grid, settings: Settings, device: torch.device
    ) -> None:  # fmt: skip
        """Wrap the pieces, or hang the data-parallel hooks on them; every rank calls this."""
        from shardlab.training.step import StepGradients

        self._masters = settings.masters and not settings.fsdp
        self.modules: list[Any] = pieces
        replica_settings: dict[str, Any] = {}
        if settings.fsdp:
            self.modules = [_sharded(piece, grid, settings, device) for piece in pieces]
        else:
            # Every rank drew the same weights from the same seed; "verify" makes sure of it.
            replica_settings = {
                "start": "verify",
                "main_grads": torch.float32 if self._masters else None,
            }
        self._weights = [p for module in self.modules for p in module.parameters()]
        self.parameters: list[nn.Parameter] = self._weights
        self.gradients = StepGradients(
            self.modules,
            grid,
            microbatches=settings.pieces,
            max_norm=settings.clip,
            **replica_settings,
        )
        if self._masters:
            from shardlab.training.masters import make_masters

            self.parameters = make_masters(self._weights)

    def attach_optimizer(self, optimizer: Optimizer) -> None:
        """Let the optimizer's steps on masters reach the model."""
        if self._masters:
            from shardlab.training.masters import serve_masters

            serve_masters(self._weights, optimizer)


def _sharded(piece: GPT, grid: Grid, settings: Settings, device: torch.device) -> nn.Module:
    """Cut a piece on meta over the replicas; no rank ever has the whole."""
    from shardlab.fsdp import FSDP
    from shardlab.fsdp.mixed_precision import MixedPrecision

    half = MixedPrecision(torch.bfloat16, torch.float32) if settings.masters else None
    units = piece.layers.values()
    return FSDP(piece, grid.replicas, units=units, mixed_precision=half, device=device)
