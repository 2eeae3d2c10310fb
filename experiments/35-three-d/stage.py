"""A rank's part of lab 01's model: its pieces, and what completes their gradients.

Either each data rank has a copy (`Copy`), or they share one (`Shards`, with --fsdp). Both give what
a schedule runs (`modules`), what an optimizer steps on (`parameters`), and complete the gradients
of a step (`finish`), clipped, with their norm.
"""

import math
from functools import partial
from typing import Any

import torch
from settings import ORDERS, Settings
from torch import Tensor, nn
from torch.optim import Optimizer

from shardlab.comm import World
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients


def grid_of(settings: Settings, world: World) -> Grid:
    """Make the groups; every rank calls this."""
    axes = ["tensor", "context", "data", "pipeline", "embedding", "tensor-pipeline"]
    axes += ["data-context"]
    if settings.experts:
        axes += ["tensor-context", "expert_data", "expert_tensor-expert"]
        axes += ["expert_tensor-expert-pipeline"]
    return Grid(
        world=world,
        tensor=settings.tp,
        context=settings.cp,
        pipeline=settings.pp,
        data=settings.dp,
        expert=settings.ep,
        expert_tensor=1 if settings.experts else None,
        order=ORDERS[settings.order],
        links=dict.fromkeys(axes, settings.link),
    )


def pieces_of(settings: Settings, grid: Grid, device: torch.device) -> list[GPT]:
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
            settings.model,
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
        own = settings.fsdp or settings.schedule == "zb-h1"
        fuse(piece, gradient_accumulation=settings.masters and not own)
    if settings.recompute:
        from torch.utils.checkpoint import checkpoint

        block: Any
        for block in piece.layers.values():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)


class Copy:
    """The stage, held whole by every data rank.

    Attributes:
        modules: the pieces.
        parameters: what an optimizer steps on: theirs, or fp32 masters of a model in bf16.
    """

    def __init__(self, pieces: list[GPT], grid: Grid, settings: Settings) -> None:
        """Hang the data-parallel hooks on the pieces; every rank calls this."""
        from shardlab.training.step import StepGradients

        self.modules: list[Any] = pieces
        self.parameters = self._own = [p for piece in pieces for p in piece.parameters()]
        # Every rank drew the same weights from the same seed; "verify" makes sure of it.
        self._gradients = StepGradients(
            pieces, grid, microbatches=settings.pieces, max_norm=settings.clip, start="verify",
            main_grads=torch.float32 if settings.masters else None,
        )  # fmt: skip
        self._masters = settings.masters
        if settings.masters:
            from shardlab.training.masters import make_masters

            self.parameters = make_masters(self._own)

    def serve(self, optimizer: Optimizer) -> None:
        """Let the optimizer's steps reach the model."""
        if self._masters:
            from shardlab.training.masters import serve_masters

            serve_masters(self._own, optimizer)

    def finish(self) -> Tensor:
        """Sum what is partial: over data, tensor (sequence parallelism), tied ends; clip."""
        return self._gradients.finish()

    def zero_grad(self) -> None:
        """Forget this step's gradients."""
        self._gradients.zero_grad()


class Shards:
    """The model cut over the data ranks.

    Attributes:
        modules: the model in FSDP.
        parameters: this rank's flat shards.
    """

    def __init__(self, model: GPT, grid: Grid, settings: Settings, device: torch.device) -> None:
        """Draw this rank's part of a model on meta; every rank calls this."""
        from shardlab.fsdp import FSDP
        from shardlab.fsdp.mixed_precision import MixedPrecision

        half = MixedPrecision(torch.bfloat16, torch.float32) if settings.masters else None
        self._fsdp = FSDP(
            model, grid.replicas, units=model.layers.values(), mixed_precision=half, device=device
        )
        self.modules: list[Any] = [self._fsdp]
        self.parameters: list[nn.Parameter] = [*self._fsdp.parameters()]
        self._tensor = grid.tensor
        self._everybody = grid.axis("tensor", "context", "data")
        self._clip = math.inf if settings.clip is None else settings.clip

    def serve(self, optimizer: Optimizer) -> None:
        """Nothing: the shards are the model."""

    def finish(self) -> Tensor:
        """Sum what is partial over tensor, since backward has summed over data; clip."""
        pieces = [piece for _, piece in self._fsdp.local_parameters()]
        partial_gradients.reduce(pieces, self._tensor)
        return self._fsdp.clip_grad_norm_(self._clip, axis=self._everybody, tensor=self._tensor)

    def zero_grad(self) -> None:
        """Forget this step's gradients."""
        self._fsdp.zero_grad()
