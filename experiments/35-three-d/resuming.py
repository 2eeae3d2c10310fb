"""Where a run of lab 01 begins and ends, and after which steps it leaves a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from settings import Settings
    from train import Trainer


def check(settings: Settings) -> None:
    """Refuse checkpoints that lack a folder, or have two to begin with.

    Raises:
        ValueError: says what to choose.
    """
    if settings.save_every < 0:
        raise ValueError(f"save_every is {settings.save_every}; choose 0 (at the end) or more")
    if (settings.resume or settings.save_every) and not settings.save:
        raise ValueError("--resume and --save-every go with --save: name the checkpoint's folder")
    if settings.resume and settings.load:
        raise ValueError("--resume goes on from --save, --load from elsewhere: choose one of them")


def bounds(trainer: Trainer) -> tuple[int, int]:
    """Load what there is to go on from; return the first step to train, and the one not to."""
    settings = trainer.settings
    resumed_folder = settings.save if settings.resume and checkpoint_exists(trainer) else None
    if folder := settings.load or resumed_folder:
        trainer.load(folder)
    begin = trainer.first_step
    return begin, max(begin, settings.steps) if settings.resume else begin + settings.steps


def checkpoint_exists(trainer: Trainer) -> bool:
    """Whether an earlier start of this run has left a checkpoint.

    Rank 0 looks, for all: a shared disk may show other ranks an older state.
    """
    from shardlab.training.checkpoint.shards import INDEX

    present = torch.tensor(
        [(Path(trainer.settings.save or "") / INDEX).is_file()], dtype=torch.int32
    )
    return bool(trainer.world.whole.broadcast(present.to(trainer.world.device)).item())


def demand_places(trainer: Trainer) -> None:
    """Refuse, before the first step, places that what the run leaves can't be written to.

    Raises:
        Refused: on every rank alike.
    """
    from fit import Refused

    settings, world = trainer.settings, trainer.world
    if not (settings.save or settings.losses):
        return
    folders = [Path(settings.save)] if settings.save else []
    if settings.losses and world.rank == world.size - 1:
        folders.append(Path(settings.losses).absolute().parent)
    unable = torch.tensor([sum(not _writable(folder) for folder in folders)], device=world.device)
    if world.whole.all_reduce(unable).item():
        places = " or ".join(place for place in (settings.save, settings.losses) if place)
        raise Refused(f"a rank can't write to {places}: choose another place; nothing is trained")


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def due(settings: Settings, done: int, end: int) -> bool:
    """Whether a checkpoint is to be written after `done` steps of a run to `end`."""
    if not settings.save:
        return False
    return done == end or (settings.save_every > 0 and done % settings.save_every == 0)
