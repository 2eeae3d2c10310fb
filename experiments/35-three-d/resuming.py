"""Where a run of lab 01 begins and ends, and after which steps it leaves a checkpoint."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from settings import Settings
    from train import Trainer

    from shardlab.comm import World


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


def origin(settings: Settings, first_step: int) -> str:
    """Return the line that says which checkpoint a run goes on from, or that it begins."""
    if settings.load:
        return f"load: goes on from the checkpoint in {settings.load}, after its step {first_step}"
    if not first_step:
        return f"resume: there is no checkpoint in {settings.save}, so training begins with step 1"
    done = "" if first_step < settings.steps else "; all steps are trained already"
    return (
        f"resume: goes on from the checkpoint in {settings.save}, "
        f"after step {first_step} of {settings.steps}{done}"
    )


def demand_places(trainer: Trainer) -> None:
    """Refuse, before the first step, places that can't be written to or that ranks don't share.

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
    if settings.save and (blind := _ranks_elsewhere(Path(settings.save), world)):
        ranks = f"rank {blind[0]} does" if len(blind) == 1 else f"ranks {_listed(blind)} do"
        raise Refused(
            f"{ranks} not find what rank 0 wrote to {settings.save}: that folder is another one on "
            "their node; choose a folder that all nodes share; nothing is trained"
        )


def _ranks_elsewhere(folder: Path, world: World) -> list[int]:
    """Return the ranks that don't find a file which rank 0 writes to `folder` for a moment."""
    from fit import Refused

    from shardlab.comm.collective_errors import raise_on_all_ranks

    token = torch.tensor([secrets.randbits(62)], device=world.device)
    name = folder / f".rank-0-was-here-{int(world.whole.broadcast(token)):016x}"
    try:
        with raise_on_all_ranks(world.whole, world.device, f"write to {folder}", Refused):
            if world.rank == 0:
                name.touch()
        missing = torch.tensor([int(not name.is_file())], device=world.device)
        flags = world.whole.all_gather(missing).tolist()
    finally:
        if world.rank == 0:
            name.unlink(missing_ok=True)
    return [rank for rank, flag in enumerate(flags) if flag]


def _listed(ranks: list[int]) -> str:
    shown = [str(rank) for rank in ranks[:8]]
    return ", ".join(shown) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


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
