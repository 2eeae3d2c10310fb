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
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    import resuming
    import torch
    from command_line import parsed, refused
    from fit import Refused, demand_fit
    from progress import in_turn, opening, show, show_held_out
    from rate import paced
    from settings import Settings
    from stage import TrainedStage, grid_of, pieces_of
    from text import EVALUATED, Share, source
    from torch import Tensor

    from shardlab.comm import World, tracing
    from shardlab.pipeline.action import Schedule
    from shardlab.pipeline.run import Microbatch, run
    from shardlab.pipeline.schedule import forward_only
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
        self.grid = grid_of(settings, world)
        pieces = pieces_of(settings, self.grid, world.device)
        self.model, self.last = pieces[0], pieces[-1]
        self.part = TrainedStage(pieces, self.grid, settings, world.device)
        self.optimizer = torch.optim.AdamW(self.part.parameters, lr=settings.lr)
        self.part.attach_optimizer(self.optimizer)
        self.rate = paced(self.optimizer, settings, 0)
        self.schedule = settings.actions
        self.reading = forward_only(settings.pp, settings.pieces, settings.chunks)
        self.text = source(settings, world, self.grid)
        self.first_step = 0
        self.norm = torch.zeros(())  # of the last step's gradients, before clipping

    def microbatches(self, share: Share) -> list[Microbatch]:
        """Return this rank's share of a batch in micro-batches: (words, next words), [B, S] each.

        Ranks that differ in tensor or pipeline place alone have the same share; those that differ
        in context place have other words of the same sequences.
        """
        pieces = self.settings.pieces
        words, following = (
            [None] * pieces
            if x_BS is None
            else self.context_shard(x_BS).to(self.world.device).chunk(pieces)
            for x_BS in share
        )
        return list(zip(words, following, strict=True))

    def context_shard(self, x_BS: Tensor) -> Tensor:
        """Return this rank's words of whole sequences."""
        return self.model.context.shard(x_BS) if self.model.context else x_BS

    def run(self, schedule: Schedule, share: Share) -> list[Tensor]:
        """Go through a schedule; return the micro-batches' losses on the last stage."""
        sequences = self.settings.batch // self.settings.dp // self.settings.pieces
        return run(
            schedule,
            self.part.modules,
            self.microbatches(share),
            self.last.loss,
            axis=self.grid.pipeline,
            shape=self.model.hidden_shape(sequences, self.settings.sequence),
        )

    def step(self, number: int) -> Tensor | None:
        """Train one step; return the loss of the whole batch on the last stage, None elsewhere."""
        # Forward and backward of every micro-batch, in the order that the schedule gives this
        # stage. The last backward also starts the gradients' way over the data axis.
        losses = self.run(self.schedule, self.text.share(number))
        # What is still partial is summed: over data, tensor (sequence parallelism) and tied ends.
        with tracing.phase("after backward"):
            self.norm = self.part.gradients.finish()
        if self.norm.isfinite():  # the same on every rank
            self.optimizer.step()
        self.rate.step()
        self.part.gradients.zero_grad()
        return self.mean(losses)

    def evaluate(self) -> Tensor | None:
        """Return the loss of text that is never trained on, where `step` returns one."""
        modules = self.part.modules
        for module in modules:
            module.eval()
        losses = []
        for number in range(EVALUATED):
            losses += self.run(self.reading, self.text.held_out(number))
        for module in modules:
            module.train()
        return self.mean(losses)

    def mean(self, losses: list[Tensor]) -> Tensor | None:
        """Return the mean over all replicas' losses; for the eyes only: training needs none."""
        if not losses:
            return None
        with tracing.phase("report"):
            return self.grid.replicas.all_reduce(torch.stack(losses).mean(), op="mean")

    def load(self, folder: str) -> None:
        """Go on from a checkpoint of any grid."""
        with self.checkpoints() as checkpoint:
            record = checkpoint.load(folder, **self.whole)
        self.first_step = int(record["step"])
        if "text" in record:  # checkpoints of earlier versions have none
            self.text.resume(record["text"], self.first_step)
        self.rate = paced(self.optimizer, self.settings, self.first_step)

    def save(self, folder: str, step: int) -> None:
        """Write a checkpoint that says `step` comes next."""
        record = {"step": step, "text": self.text.state(step)}
        with self.checkpoints() as checkpoint:
            checkpoint.save(folder, **self.whole, record=record)

    @property
    def whole(self) -> dict[str, Any]:
        """What a checkpoint is of."""
        return {"model": self.part.modules, "optimizer": self.optimizer, "grid": self.grid}

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
        return self.speaks and self.last.last


def train(settings: Settings, world: World) -> list[float]:
    """Run all steps; return the losses on the last stage's ranks, nothing elsewhere."""
    from shardlab.proofs.ledger import Ledger  # a step needs no proof: it watches the last

    trainer = Trainer(settings, world)
    resuming.demand_places(trainer)
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
            show(trainer, step + 1, end, losses[-1], seconds)
        if settings.evaluate and (step + 1) % settings.evaluate == 0:
            show_held_out(trainer, step + 1, end, trainer.evaluate())
        if resuming.due(settings, step + 1, end):
            trainer.save(settings.save, step + 1)
    for stage in in_turn(trainer):
        counted = ledger.summary() if ledger.entries else "nothing was sent"
        print(f"\nthe last step, as the first rank of stage {stage} counts it\n{counted}")
    return losses


def joined(settings: Settings) -> World:
    """Join the ranks, as the settings say how."""
    torch.set_num_threads(1)  # one rank stands for one device, so that grids can be compared
    return World.join(
        backend="gloo" if settings.cpu else None, check=settings.check,
        wide_sums=settings.wide_sums, share_gpus=settings.share_gpus,
    )  # fmt: skip


def main() -> int:
    """Read the command line, join the ranks, train; return the exit status."""
    try:
        settings = parsed()
        demand_fit(settings, int(os.environ.get("WORLD_SIZE", "1")))
        world = joined(settings)
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
