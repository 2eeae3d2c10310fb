"""A run's checkpoints: which to go on from, when to write one, and where none can be written."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from settings import Refused, Settings

from shardlab.comm import World


def folder_to_load(settings: Settings, world: World) -> str | None:
    """Return the folder of the checkpoint to go on from; None for a run that begins.

    Under --resume rank 0 looks for it, for all: a shared disk may show other ranks an older state.
    """
    if not settings.resume:
        return settings.load
    from shardlab.training.checkpoint.shards import INDEX

    present = torch.tensor([(Path(settings.save or "") / INDEX).is_file()], dtype=torch.int32)
    return settings.save if world.whole.broadcast(present.to(world.device)).item() else None


@contextmanager
def refusals() -> Iterator[ModuleType]:
    """Yield shardlab's checkpoints, imported when first used; their errors end the run in a line.

    Raises:
        Refused: in place of a CheckpointError.
    """
    from shardlab.training import checkpoint

    try:
        yield checkpoint
    except checkpoint.CheckpointError as error:
        raise Refused(str(error)) from error


def is_due(settings: Settings, done: int, end: int) -> bool:
    """Whether a checkpoint is to be written after `done` steps of a run to `end`."""
    return done == end or (settings.save_every > 0 and done % settings.save_every == 0)


def describe_origin(settings: Settings, first_step: int) -> str:
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


def demand_places(settings: Settings, world: World) -> None:
    """Refuse, before the first step, places that can't be written to or that ranks don't share.

    Raises:
        Refused: on every rank alike.
    """
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
