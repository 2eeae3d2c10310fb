"""Checkpoints that another grid can load: tensor, pipeline and data axes of any size, and FSDP.

    checkpoint/
      index.json                       what there is, and which file has which piece of it
      shards-6b1f…/rank-00000.safetensors …

Every rank writes the pieces that it alone holds, or is the first to hold, and says which tensors it
holds at all. Rank 0 proves that the new index has each element of each of these tensors once. Then
it puts the new index in the place of the old one, in a single rename: a job that is killed before
leaves the old checkpoint whole, and after, the new one. A load reads from each file only the slices
that it needs.

No code runs on a load: the index is JSON, the shards are safetensors.

`torch.distributed.checkpoint` was weighed and left. Its reader unpickles `.metadata`
(`FileSystemReader.read_metadata`) and its planner whatever is no tensor
(`DefaultLoadPlanner.load_bytes`), so a checkpoint must be trusted; only a DTensor tells it how a
tensor is cut; and it writes into the folder of the checkpoint that it replaces, file by file.
Megatron's `dist_checkpointing` has `ShardedTensor`, with global offsets: the idea of `Held` here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import msgspec
import torch
from torch import nn
from torch.optim import Optimizer

from shardlab.comm import Axis
from shardlab.comm.collective_errors import raise_on_all_ranks
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.dropout import Dropout, dropouts_of
from shardlab.training.checkpoint import index as indexes
from shardlab.training.checkpoint import shards
from shardlab.training.checkpoint.held import (
    Room,
    of_optimizer,
    of_parameters,
    parts_in,
    restored_groups,
    room_for_optimizer,
    settings,
)
from shardlab.training.checkpoint.index import CheckpointError, Index, StoredTensor
from shardlab.training.checkpoint.parts import Held, gpt_of
from shardlab.training.masters import round_masters

if TYPE_CHECKING:
    from shardlab.fsdp import FSDP

__all__ = ["CheckpointError", "load", "save"]

Model: TypeAlias = Union[GPT, "FSDP"]
Groups: TypeAlias = list[dict[str, Any]]  # an optimizer's settings
Written: TypeAlias = tuple[dict[str, StoredTensor], Groups]  # what one rank holds, and wrote
_FREE = {"dropout", "init_std", "dtype"}  # may differ on a load (each tensor's dtype may not)


def save(
    path: Path | str, *, model: Model | Sequence[Model], grid: Grid,
    optimizer: Optimizer | None = None, record: Mapping[str, Any] | None = None,
    generators: Mapping[str, torch.Generator] | None = None,
) -> None:  # fmt: skip
    """Write a checkpoint, in the place of one that is at `path`; every rank calls this.

    Args:
        path: a folder that all ranks see.
        model: this rank's stage, as it is or in FSDP; or its pieces, under an interleaved schedule.
        grid: where this rank stands.
        optimizer: of its parameters; AdamW, SGD or any whose state has the parameters' shape.
        record: what else to note, as JSON: step, position in the data, a schedule's state; rank 0's
            is written.
        generators: of random numbers that all ranks draw alike (the order of the data, say).
            Dropout needs none: its masks are numbered, and the number is saved.

    Raises:
        CheckpointError: on every rank, if a rank could not write, if rank 0 does not see what
            another rank wrote, if an element of a parameter or of an optimizer's state that any
            rank holds was written by no rank or by two, or if the settings of an optimizer's groups
            differ between ranks; the older checkpoint then stays.
    """
    root, chunks = Path(path), _listed(model)
    whole, device = _everybody(grid), next(chunks[0].parameters()).device
    token = torch.tensor([secrets.randbits(62)], device=device)
    folder = f"shards-{int(whole.broadcast(token)):016x}"
    with raise_on_all_ranks(whole, device, "write its shard", CheckpointError):
        parts = parts_in(chunks, grid)
        held = of_parameters(parts) + _of_generators(generators, writes=whole.rank == 0)
        if optimizer is not None:
            held += of_optimizer(optimizer, parts)
        noted = _json(record or {})
        groups = settings(optimizer) if optimizer else []
        mine = shards.write(root / folder, whole.rank, held)
    written = _gather((mine, groups), whole, device)
    drawn = torch.tensor(
        [max((d.masks_drawn for d in _dropouts(chunks)), default=0)], device=device
    )
    masks = int(whole.all_reduce(drawn, op="max"))
    with raise_on_all_ranks(whole, device, "write the index", CheckpointError):
        if whole.rank == 0:
            _one_for_all([theirs for _, theirs in written], whole)
            tensors = indexes.merge(tensors for tensors, _ in written)
            shards.demand_files(root, tensors)
            config = _plain(gpt_of(chunks[0]).config)
            index = Index(indexes.FORMAT, config, groups, noted, tensors, masks)
            shards.commit(root, msgspec.json.format(msgspec.json.encode(index), indent=1))
            shards.sweep(root, folder)


def load(
    path: Path | str, *, model: Model | Sequence[Model], grid: Grid,
    optimizer: Optimizer | None = None,
    generators: Mapping[str, torch.Generator] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Fill model, optimizer and generators from a checkpoint of any grid; return its record.

    Everything is checked before anything is written, so a load that is refused leaves the model as
    it was. Arguments as in `save`; every rank calls this.

    Raises:
        CheckpointError: on every rank, where one found that the checkpoint is missing, damaged, or
            of another model.
    """
    root, chunks = Path(path), _listed(model)
    whole, device = _everybody(grid), next(chunks[0].parameters()).device
    room = Room()
    groups: list[dict[str, object]] = []
    with raise_on_all_ranks(whole, device, "read the checkpoint", CheckpointError):
        index = indexes.read(root / shards.INDEX)
        _same_config(index.config, gpt_of(chunks[0]).config)
        reader = shards.Reader(root, index)
        drawn = _of_generators(generators, writes=False)
        parts = parts_in(chunks, grid)
        held = of_parameters(parts) + drawn
        if optimizer is not None:
            room = room_for_optimizer(optimizer, parts, index.tensors)
            groups = restored_groups(optimizer, index.optimizer)
            held += room.held
        for piece in held:
            reader.prepare(piece)
    _nothing_left(index, held, whole, device, optimizer is not None)
    with raise_on_all_ranks(whole, device, "read its slices", CheckpointError), torch.no_grad():
        for piece in held:
            reader.read(piece)
        room.check()
    for chunk in chunks:
        round_masters(chunk.parameters())
    if optimizer is not None:
        optimizer.load_state_dict({"state": room.state, "param_groups": groups})
    for generator, piece in zip((generators or {}).values(), drawn, strict=True):
        generator.set_state(piece.tensor)
    for dropout in _dropouts(chunks):
        dropout.masks_drawn = index.masks
    return index.record


def _listed(model: Model | Sequence[Model]) -> list[Model]:
    return [model] if isinstance(model, nn.Module) else list(model)


def _dropouts(chunks: Sequence[Model]) -> list[Dropout]:
    return [dropout for chunk in chunks for dropout in dropouts_of(chunk)]


def _everybody(grid: Grid) -> Axis:
    return grid.axis("tensor", "context", "data", "pipeline")


def _json(record: Mapping[str, Any]) -> dict[str, Any]:
    try:
        noted: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    except TypeError as error:
        raise CheckpointError(f"the record is not plain JSON: {error}") from None
    return noted


def _of_generators(generators: Mapping[str, torch.Generator] | None, *, writes: bool) -> list[Held]:
    states = {f"generator/{name}": g.get_state() for name, g in (generators or {}).items()}
    return [Held(name, s, tuple(s.shape), (0,), writes) for name, s in states.items()]


def _gather(mine: Written, whole: Axis, device: torch.device) -> list[Written]:
    """Return what every rank wrote, as JSON through one padded all-gather."""
    content = msgspec.json.encode(mine)
    lengths = whole.all_gather(torch.tensor([len(content)], device=device)).tolist()
    row = torch.frombuffer(bytearray(content.ljust(max(lengths))), dtype=torch.uint8).to(device)
    rows = whole.all_gather(row).view(whole.size, -1).cpu()
    return [
        msgspec.json.decode(bytes(rows[i, :n].numpy()), type=Written) for i, n in enumerate(lengths)
    ]


def _one_for_all(groups: list[Groups], whole: Axis) -> None:
    """Refuse settings that differ between ranks: a load gives every rank those of the index."""
    for rank, theirs in zip(whole.ranks, groups, strict=True):
        if theirs != groups[0]:
            both = zip(theirs, groups[0], strict=False)
            keys = sorted({k for one, other in both for k in one if one[k] != other.get(k)})
            raise CheckpointError(
                f"the optimizers' parameter groups differ, in {', '.join(keys) or 'number'}, "
                f"between ranks {whole.ranks[0]} and {rank}, and a load would give both the "
                "former's: make the same groups on every stage, empty ones too"
            )


def _plain(config: GPTConfig) -> dict[str, Any]:
    return asdict(config) | {"dtype": shards.dtype_name(config.dtype)}


def _same_config(saved: dict[str, Any], config: GPTConfig) -> None:
    mine = _plain(config)
    keys = sorted((saved.keys() | mine.keys()) - _FREE)
    differ = [
        f"{k} = {saved.get(k)} (here {mine.get(k)})" for k in keys if saved.get(k) != mine.get(k)
    ]
    if differ:
        raise CheckpointError(
            f"the checkpoint is of another model: {', '.join(differ)}; make the model with these"
        )


def _nothing_left(
    index: Index, held: list[Held], whole: Axis, device: torch.device, optimizer: bool
) -> None:
    """Refuse a checkpoint that has tensors which no rank wants: it is of another model."""
    wanted = {piece.name for piece in held}
    names = sorted(n for n in index.tensors if optimizer or not n.startswith("optimizer."))
    flags = torch.tensor([n in wanted for n in names], dtype=torch.int32, device=device)
    left = [
        n for n, f in zip(names, whole.all_reduce(flags, op="max").tolist(), strict=True) if not f
    ]
    if left:
        raise CheckpointError(
            f"the checkpoint holds {len(left)} tensors that no rank wants: {', '.join(left[:6])}; "
            "it was written from another model, optimizer, or with more generators"
        )
