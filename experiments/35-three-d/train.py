"""Lab 01: a small GPT trained on tensor × pipeline × data ranks, every abstraction explicit.

    torchrun --nproc-per-node=8 experiments/35-three-d/train.py --tp 2 --pp 2 --dp 2
    torchrun --nproc-per-node=4 experiments/35-three-d/train.py --tp 2 --pp 2 --dp 1
    torchrun --nproc-per-node=2 experiments/35-three-d/train.py --tp 2 --pp 1 --dp 1 --cpu
    torchrun --nproc-per-node=2 experiments/35-three-d/train.py --cp 2 --sequence 1024 --cpu

Any grid starts from the same weights, sees the same batches and so has the same losses.
docs/labs/01-three-d.md walks through it.

Dimensions: B sequences (of a data rank's micro-batch), S words of a sequence.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    import resuming
    import torch
    from progress import in_turn, opening, show
    from settings import ORDERS, Refused, Settings, parsed, refused
    from text import source
    from torch import Tensor, nn

    from shardlab.comm import World, observed
    from shardlab.gpt.model import GPT
    from shardlab.grid.grid import Grid
    from shardlab.layers import partial_gradients
    from shardlab.pipeline.run import Microbatch, run
    from shardlab.pipeline.schedule import by_name
except ModuleNotFoundError as missing:
    sys.exit(
        f"train.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )


class Trainer:
    """One rank's part of a run: its place on the grid, its stage of the model, its optimizer.

    Args:
        settings: the run, the same on every rank.
        world: the ranks.
    """

    def __init__(self, settings: Settings, world: World) -> None:
        """Make the groups and the model; every rank calls this."""
        self.settings = settings
        self.world = world
        axes = ["tensor", "context", "data", "pipeline", "embedding", "tensor-pipeline"]
        axes += ["data-context"]
        if settings.experts:
            axes += ["expert_data", "expert_tensor-expert", "expert_tensor-expert-pipeline"]
        self.grid = grid = Grid(
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
        self.model = GPT(
            settings.model,
            tensor=grid.tensor,
            sequence_parallel=settings.sequence_parallel,
            seed=settings.seed,
            stage=grid.pipeline.rank,
            stages=grid.pipeline.size,
            device=world.device,
            experts=self.expert_axes(),
            context=self.context(),
        )
        if settings.fused:
            from shardlab.layers.matmul import fuse

            fuse(self.model)
        self.stage, self.finish = self.sharded() if settings.fsdp else self.replicated()
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=settings.lr)
        self.schedule = by_name(settings.schedule, settings.pp, settings.pieces)
        self.text = source(settings, world, grid)
        self.first_step = 0

    def expert_axes(self) -> Any:
        """Return the axes that experts work on, where there are any."""
        if not self.settings.experts:
            return None
        from shardlab.experts.layer import ExpertAxes

        return ExpertAxes.of(self.grid)

    def context(self) -> Any:
        """Return how sequences are cut over ranks, where they are."""
        if self.settings.cp == 1:
            return None
        from shardlab.context.parallel import ContextParallel

        return ContextParallel(self.grid.context, self.settings.cp_kind)

    def replicated(self) -> tuple[nn.Module, Callable[[], object]]:
        """Return the stage, held whole by every data rank, and what completes its gradients."""
        from shardlab.training.step import StepGradients

        # Every rank drew the same weights from the same seed; "verify" makes sure of it.
        gradients = StepGradients(
            self.model, self.grid, microbatches=self.settings.pieces, start="verify"
        )
        return self.model, gradients.finish

    def sharded(self) -> tuple[nn.Module, Callable[[], object]]:
        """Return the model cut over the data ranks, and what completes its gradients."""
        from shardlab.fsdp import FSDP

        fsdp = FSDP(self.model, self.grid.replicas, units=self.model.layers.values())

        def finish() -> None:  # backward has summed over data; norms and row biases wait for tensor
            pieces = [piece for _, piece in fsdp.local_parameters()]
            partial_gradients.reduce(pieces, self.grid.tensor)

        return fsdp, finish

    def microbatches(self, step: int) -> list[Microbatch]:
        """Return this rank's share of a step's batch: (words, next words), [B, S] each.

        Ranks that differ in tensor or pipeline place alone have the same share; those that differ
        in context place have other words of the same sequences.
        """
        pieces = self.settings.pieces
        words, following = (
            [None] * pieces if x_BS is None else self.own(x_BS).to(self.world.device).chunk(pieces)
            for x_BS in self.text.share(step)
        )
        return list(zip(words, following, strict=True))

    def own(self, x_BS: Tensor) -> Tensor:
        """Return this rank's words of whole sequences."""
        return self.model.context.own(x_BS) if self.model.context else x_BS

    def step(self, number: int) -> Tensor | None:
        """Train one step; return the loss of the whole batch on the last stage, None elsewhere."""
        microbatches = self.microbatches(number)
        sequences = self.settings.batch // self.settings.dp // self.settings.pieces
        # Forward and backward of every micro-batch, in the order that the schedule gives this
        # stage. The last backward also starts the gradients' way over the data axis.
        losses = run(
            self.schedule,
            self.stage,
            microbatches,
            self.model.loss,
            axis=self.grid.pipeline,
            shape=self.model.hidden_shape(sequences, self.settings.sequence),
        )
        # What is still partial is summed: over data, tensor (sequence parallelism) and tied ends.
        with observed.during("after backward"):
            self.finish()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if not losses:
            return None
        # For the eyes only: training needs the loss's gradient, not the loss.
        with observed.during("report"):
            return self.grid.replicas.all_reduce(torch.stack(losses).mean(), op="mean")

    def load(self, folder: str) -> None:
        """Go on from a checkpoint of any grid."""
        with self.checkpoints() as checkpoint:
            whole = {"model": self.stage, "optimizer": self.optimizer, "grid": self.grid}
            self.first_step = int(checkpoint.load(folder, **whole)["step"])

    def save(self, folder: str, step: int) -> None:
        """Write a checkpoint that says `step` comes next."""
        with self.checkpoints() as checkpoint:
            whole = {"model": self.stage, "optimizer": self.optimizer, "grid": self.grid}
            checkpoint.save(folder, **whole, record={"step": step})

    @contextmanager
    def checkpoints(self) -> Iterator[ModuleType]:
        """Lend the checkpoints; what they refuse ends the run in a line."""
        from shardlab.training import checkpoint

        try:
            yield checkpoint
        except checkpoint.CheckpointError as error:
            raise Refused(str(error)) from error

    @property
    def speaks(self) -> bool:
        """Whether this rank is the first of its stage, which prints for it."""
        return self.grid.tensor.rank == 0 and self.grid.replicas.rank == 0

    @property
    def reports(self) -> bool:
        """Whether this rank prints the losses: the first of those that know them."""
        return self.speaks and self.model.last


def train(settings: Settings, world: World) -> list[float]:
    """Run all steps; return the losses on the last stage's ranks, nothing elsewhere."""
    from shardlab.proofs.ledger import Ledger  # a step needs no proof: it watches the last

    trainer = Trainer(settings, world)
    begin, end = resuming.bounds(trainer)
    trainer.text.demand(end)
    if trainer.reports:
        print(opening(trainer), flush=True)
    ledger, losses, seconds = Ledger(), [], []
    for step in range(begin, end):
        started = time.perf_counter()
        with ledger if step == end - 1 else nullcontext():
            loss = trainer.step(step)
        if loss is not None:
            losses.append(loss.item())
        seconds.append(time.perf_counter() - started)
        if trainer.reports:
            show(settings, step + 1, end, losses[-1], seconds)
        if resuming.due(settings, step + 1, end):
            trainer.save(settings.save, step + 1)
    for stage in in_turn(trainer):
        counted = ledger.summary() if ledger.entries else "nothing was sent"
        print(f"\nthe last step, as the first rank of stage {stage} counts it\n{counted}")
    return losses


def main() -> int:
    """Read the command line, join the ranks, train; return the exit status."""
    try:
        settings = parsed()
        settings.demand_fit(int(os.environ.get("WORLD_SIZE", "1")))
        torch.set_num_threads(1)  # one rank stands for one device, so that grids can be compared
        world = World.join(
            backend="gloo" if settings.cpu else None, check=settings.check,
            wide_sums=settings.wide_sums, share_gpus=settings.share_gpus,
        )  # fmt: skip
    except (ValueError, RuntimeError) as error:
        return refused(error)
    with world:
        try:
            losses = train(settings, world)
        except Refused as error:
            return refused(error)
        if settings.losses and losses and world.rank == world.size - 1:
            Path(settings.losses).write_text("".join(f"{loss!r}\n" for loss in losses), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
