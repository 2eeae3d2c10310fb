"""Lab 01: a small GPT trained on tensor × pipeline × data ranks, every abstraction explicit.

    torchrun --nproc-per-node=8 experiments/35-three-d/train.py --tp 2 --pp 2 --dp 2
    torchrun --nproc-per-node=4 experiments/35-three-d/train.py --tp 2 --pp 2 --dp 1
    torchrun --nproc-per-node=2 experiments/35-three-d/train.py --tp 2 --pp 1 --dp 1 --cpu
    torchrun --nproc-per-node=2 experiments/35-three-d/train.py --cp 2 --sequence 1024 --cpu

Any grid starts from the same weights, sees the same batches and so has the same losses.
docs/labs/01-three-d.md walks through it.

Read this file from the top: what a rank makes before the first step, a step, the loop, what the
loop prints. Beside it are `settings.py` (the options, and which are refused), `stage.py` (a rank's
part of the model), `text.py` (the batches) and `checkpoints.py`; `traced.py` records a step.

Dimensions: B sequences (of a data rank's micro-batch), S words of a sequence.
"""

import math
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

try:
    import checkpoints
    import torch
    from settings import ORDERS, Refused, Settings, demand_fit, parse_arguments, print_refusal
    from stage import TrainedStage, make_pieces
    from text import EVALUATED, Share, open_text
    from torch import Tensor
    from torch.optim.lr_scheduler import LambdaLR

    from shardlab.comm import World, tracing
    from shardlab.grid.grid import Grid
    from shardlab.pipeline.action import Schedule
    from shardlab.pipeline.run import Microbatch, run
    from shardlab.pipeline.schedule import forward_only
except ModuleNotFoundError as missing:
    sys.exit(
        f"train.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )


# ---------------------------------------------------------------------- before the first step


def make_grid(settings: Settings, world: World) -> Grid:
    """Make the groups of ranks, one for each place on each axis; every rank calls this."""
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


def learning_rate_factor(step: int, warmup: int, decay: int | None) -> float:
    """Return what the rate is multiplied by: a rise, then half a cosine down to a tenth.

    It depends on the step alone, so a run that goes on from a checkpoint needs only the step.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)  # not 0, which would be a step for nothing
    if decay is None:
        return 1.0
    done = min(1.0, (step - warmup) / (decay - warmup))
    return 0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2


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
        # The grid gives this rank a place on each axis.
        self.grid = make_grid(settings, world)
        # The model: this stage's pieces, cut over the tensor axis, and replicated or sharded (FSDP)
        # over the data axis.
        pieces = make_pieces(settings, self.grid, world.device)
        self.model, self.last = pieces[0], pieces[-1]
        self.part = TrainedStage(pieces, self.grid, settings, world.device)
        # The data: every rank knows the same batches, and reads its share of each.
        self.text = open_text(settings, world, self.grid)
        # The optimizer works on what this rank holds, and sends nothing.
        self.optimizer = torch.optim.AdamW(self.part.parameters, lr=settings.lr)
        self.part.attach_optimizer(self.optimizer)
        self.first_step = 0
        self.lr_scheduler = self.schedule_rate()
        # What this stage computes and sends in a step, and in an evaluation.
        self.schedule = settings.actions
        self.evaluation = forward_only(settings.pp, settings.pieces, settings.chunks)
        self.norm = torch.zeros(())  # of the last step's gradients, before clipping

    def schedule_rate(self) -> LambdaLR:
        """Have the optimizer's rate follow `learning_rate_factor`, from the first step on."""

        def factor(step: int) -> float:
            return learning_rate_factor(step, self.settings.warmup, self.settings.decay)

        return LambdaLR(self.optimizer, factor, last_epoch=self.first_step - 1)

    # ------------------------------------------------------------------ a step

    def step(self, number: int) -> Tensor | None:
        """Train one step; return the loss of the whole batch on the last stage, None elsewhere."""
        # Forward and backward of every micro-batch, in the order that the schedule gives this
        # stage. The last backward also starts the gradients' way over the data axis.
        losses = self.run(self.schedule, self.text.share(number))
        # Gradients that are still partial are summed: over data, over tensor (under sequence
        # parallelism) and over both ends of a tied embedding. Then they are clipped.
        with tracing.phase("after backward"):
            self.norm = self.part.gradients.finish()
        if self.norm.isfinite():  # the same on every rank
            self.optimizer.step()
        self.lr_scheduler.step()
        self.part.gradients.zero_grad()
        return self.mean(losses)

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

    def mean(self, losses: list[Tensor]) -> Tensor | None:
        """Return the mean over all replicas' losses, which only the printed lines need."""
        if not losses:
            return None
        with tracing.phase("report"):
            return self.grid.replicas.all_reduce(torch.stack(losses).mean(), op="mean")

    def evaluate(self) -> Tensor | None:
        """Return the loss of text that is never trained on, where `step` returns one."""
        modules = self.part.modules
        for module in modules:
            module.eval()
        losses = []
        for number in range(EVALUATED):
            losses += self.run(self.evaluation, self.text.held_out(number))
        for module in modules:
            module.train()
        return self.mean(losses)

    # ------------------------------------------------------------------ from run to run

    def load(self, folder: str) -> None:
        """Go on from a checkpoint of any grid."""
        with checkpoints.refusals() as checkpoint:
            record = checkpoint.load(
                folder, model=self.part.modules, optimizer=self.optimizer, grid=self.grid
            )
        self.first_step = int(record["step"])
        if "text" in record:  # checkpoints of earlier versions have none
            self.text.resume(record["text"], self.first_step)
        self.lr_scheduler = self.schedule_rate()

    def save(self, folder: str, step: int) -> None:
        """Write a checkpoint that says `step` comes next."""
        record = {"step": step, "text": self.text.state(step)}
        with checkpoints.refusals() as checkpoint:
            checkpoint.save(
                folder, model=self.part.modules, optimizer=self.optimizer, grid=self.grid,
                record=record,
            )  # fmt: skip

    # ------------------------------------------------------------------ who prints

    @property
    def speaks(self) -> bool:
        """Whether this rank is the first of its stage, which prints for it."""
        return self.grid.tensor.rank == 0 and self.grid.replicas.rank == 0

    @property
    def reports(self) -> bool:
        """Whether this rank prints the losses: the first of those that know them."""
        return self.speaks and self.last.last


# ---------------------------------------------------------------------- the loop


def train(settings: Settings, world: World) -> list[float]:
    """Run all steps; return the losses on the last stage's ranks, nothing elsewhere."""
    from shardlab.proofs.ledger import Ledger  # a step needs no proof: it watches the last

    trainer = Trainer(settings, world)
    checkpoints.demand_places(settings, world)
    if folder := checkpoints.folder_to_load(settings, world):
        trainer.load(folder)
    begin = trainer.first_step
    end = max(begin, settings.steps) if settings.resume else begin + settings.steps
    trainer.text.demand(end)
    if trainer.reports:
        print(describe_run(trainer), flush=True)
    ledger, losses, seconds = Ledger(), [], []
    for step in range(begin, end):
        started = time.perf_counter()
        with ledger if step == end - 1 else nullcontext():
            loss = trainer.step(step)
        if loss is not None:
            losses.append(loss.item())
        seconds.append(time.perf_counter() - started)
        if trainer.reports:
            print_step(trainer, step + 1, end, losses[-1], seconds)
        if settings.evaluate and (step + 1) % settings.evaluate == 0:
            held_out = trainer.evaluate()
            if held_out is not None and trainer.reports:
                print(f"step {step + 1:4}/{end}  held out {held_out.item():.4f}", flush=True)
        if settings.save and checkpoints.is_due(settings, step + 1, end):
            trainer.save(settings.save, step + 1)
    for stage in wait_for_turn(trainer):
        counted = ledger.summary() if ledger.entries else "nothing was sent"
        print(f"\nthe last step, as the first rank of stage {stage} counts it\n{counted}")
    return losses


def describe_run(trainer: Trainer) -> str:
    """Return what to print before the first step."""
    settings, world = trainer.settings, trainer.world
    link = world.backend if settings.link == "torch" else settings.link
    cut = f" x context {settings.cp} ({settings.cp_kind})" if settings.cp > 1 else ""
    pieces = f"{settings.pieces} micro-batch{'es' if settings.pieces > 1 else ''}"
    llama = ", of Llama" if settings.model == "llama" else ""
    start = ""
    if settings.resume or settings.load:
        start = f"\n{checkpoints.describe_origin(settings, trainer.first_step)}"
    return (
        f"tensor {settings.tp}{cut} x pipeline {settings.pp} x data {settings.dp} = "
        f"{world.size} ranks on {world.device.type} over {link}; {settings.schedule}, {pieces}, "
        f"{settings.dtype}\n"
        f"{settings.layers} layers of {settings.hidden}{llama}; {trainer.text.description}{start}"
    )


def print_step(trainer: Trainer, step: int, end: int, loss: float, seconds: list[float]) -> None:
    """Print progress: on a terminal in place, elsewhere a line now and then."""
    settings = trainer.settings
    keep = step % settings.every == 0 or step == end
    if keep or sys.stdout.isatty():
        typical = statistics.median(seconds[1:] or seconds)  # the first step warms up
        rate = settings.batch * settings.sequence / typical
        now = f"loss {loss:.4f}  norm {trainer.norm.item():.3f}"
        speed = f"{1000 * typical:.1f} ms  {rate:,.0f} tokens/s"
        print(f"step {step:4}/{end}  {now}  {speed}", end="\n" if keep else "\r", flush=True)


def wait_for_turn(trainer: Trainer) -> Iterator[int]:
    """Let the ranks that print do so one stage after another: yield this one's stage, once."""
    for stage in range(trainer.grid.pipeline.size):
        trainer.world.whole.barrier()
        if trainer.speaks and trainer.grid.pipeline.rank == stage:
            yield stage
            sys.stdout.flush()


# ---------------------------------------------------------------------- the command


def join_world(settings: Settings) -> World:
    """Join the ranks, as the settings say how."""
    torch.set_num_threads(1)  # one rank stands for one device, so that grids can be compared
    return World.join(
        backend="gloo" if settings.cpu else None, check=settings.check,
        wide_sums=settings.wide_sums, share_gpus=settings.share_gpus,
    )  # fmt: skip


def main() -> int:
    """Read the command line, join the ranks, train; return the exit status."""
    try:
        settings = parse_arguments()
        demand_fit(settings, int(os.environ.get("WORLD_SIZE", "1")))
        world = join_world(settings)
    except (ValueError, RuntimeError) as error:
        return print_refusal(error)
    with world:
        try:
            losses = train(settings, world)
        except Refused as error:
            return print_refusal(error)
        if settings.losses and losses and world.rank == world.size - 1:
            Path(settings.losses).write_text("".join(f"{loss!r}\n" for loss in losses), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
