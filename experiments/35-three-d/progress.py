"""What a run of lab 01 says while it trains, and which of its ranks says it."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import resuming
from torch import Tensor

if TYPE_CHECKING:
    from train import Trainer


def opening(trainer: Trainer) -> str:
    """Return what to say before the first step."""
    settings, world = trainer.settings, trainer.world
    link = world.backend if settings.link == "torch" else settings.link
    cut = f" x context {settings.cp} ({settings.cp_kind})" if settings.cp > 1 else ""
    pieces = f"{settings.pieces} micro-batch{'es' if settings.pieces > 1 else ''}"
    start = ""
    if settings.resume or settings.load:
        start = f"\n{resuming.origin(settings, trainer.first_step)}"
    return (
        f"tensor {settings.tp}{cut} x pipeline {settings.pp} x data {settings.dp} = "
        f"{world.size} ranks on {world.device.type} over {link}; {settings.schedule}, {pieces}, "
        f"{settings.dtype}\n"
        f"{settings.layers} layers of {settings.hidden}; {trainer.text.said}{start}"
    )


def show(trainer: Trainer, step: int, end: int, loss: float, seconds: list[float]) -> None:
    """Print progress: on a terminal in place, elsewhere a line now and then."""
    settings = trainer.settings
    keep = step % settings.every == 0 or step == end
    if keep or sys.stdout.isatty():
        typical = statistics.median(seconds[1:] or seconds)  # the first step warms up
        rate = settings.batch * settings.sequence / typical
        now = f"loss {loss:.4f}  norm {trainer.norm.item():.3f}"
        speed = f"{1000 * typical:.1f} ms  {rate:,.0f} tokens/s"
        print(f"step {step:4}/{end}  {now}  {speed}", end="\n" if keep else "\r", flush=True)


def show_held_out(trainer: Trainer, step: int, end: int, loss: Tensor | None) -> None:
    """Print what an evaluation found, on the rank that reports."""
    if loss is not None and trainer.reports:
        print(f"step {step:4}/{end}  held out {loss.item():.4f}", flush=True)


def in_turn(trainer: Trainer) -> Iterator[int]:
    """Let the ranks that speak do so one stage after another: yield this one's stage, once."""
    for stage in range(trainer.grid.pipeline.size):
        trainer.world.whole.barrier()
        if trainer.speaks and trainer.grid.pipeline.rank == stage:
            yield stage
            sys.stdout.flush()
