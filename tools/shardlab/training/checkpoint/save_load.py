"""Writes a checkpoint from one grid, and loads one into a model and an optimizer on another.

Every rank writes its slices into a file, and rank 0 the index of all. A load checks everything
before it changes a value.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import torch
from torch import nn
from torch.optim import Optimizer

from shardlab.comm import Axis
from shardlab.comm.collective_errors import raise_on_all_ranks
from shardlab.grid.grid import Grid
from shardlab.layers.dropout import Dropout, dropouts_of
from shardlab.training.checkpoint import index as indexes
from shardlab.training.checkpoint import shards
from shardlab.training.checkpoint.index import CheckpointError, Index, StoredTensor
from shardlab.training.checkpoint.slices import (
    RestorePlan,
    TensorSlice,
    group_settings,
    list_runs,
    model_of,
    plan_optimizer_restore,
    restore_groups,
    slice_optimizer,
    slice_parameters,
)
from shardlab.training.masters import round_masters

Groups: TypeAlias = list[dict[str, Any]]  # an optimizer's settings
Written: TypeAlias = tuple[dict[str, StoredTensor], Groups]  # one rank's entries and settings
_FREE = {"dropout", "init_std", "dtype"}  # may differ on a load (a tensor's dtype may not)


def save(
    path: Path | str, *, model: nn.Module | Sequence[nn.Module], grid: Grid,
    optimizer: Optimizer | None = None, record: Mapping[str, Any] | None = None,
    generators: Mapping[str, torch.Generator] | None = None,
    config: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write a checkpoint, which replaces the one at `path`, if any; every rank must call this.

    Args:
        path: a folder that all ranks share.
        model: this rank's stage, plain or in FSDP; or its pieces, under an interleaved schedule.
            Any module whose parameters have the names of the whole model and the marks of their
            layers. A copy of a tied weight is written by the first stage alone (`tied_weight`).
        grid: the process grid.
        optimizer: the optimizer of these parameters: AdamW, SGD or any other whose state has the
            parameters' shape.
        record: further JSON values: step, position in the data, a schedule's state. Rank 0's are
            written.
        generators: random generators that are equal on all ranks, such as that of the data's order.
            Dropout needs none, as its masks are numbered and the number is saved.
        config: the model's settings as JSON values, which a load compares; by default those of
            `model.config`, if it is a dataclass or a mapping.

    Raises:
        CheckpointError: on every rank; the older checkpoint stays. A rank could not write; rank 0
            doesn't see another rank's file; an element of a tensor was written by no rank or by
            two; the model has buffers that must be saved; or the settings of the optimizer's
            groups differ between ranks.
    """
    root, chunks = Path(path), _as_list(model)
    whole, device = _all_ranks(grid), next(chunks[0].parameters()).device
    token = torch.tensor([secrets.randbits(62)], device=device)
    folder = f"shards-{int(whole.broadcast(token)):016x}"
    with raise_on_all_ranks(whole, device, "write its shard", CheckpointError):
        _refuse_buffers(chunks)
        plain_config = _plain_config(chunks[0], config)
        runs = list_runs(chunks, grid)
        slices = slice_parameters(runs) + _slice_generators(generators, writes=whole.rank == 0)
        if optimizer is not None:
            slices += slice_optimizer(optimizer, runs)
        plain_record = _to_plain_json("record", record or {})
        groups = group_settings(optimizer) if optimizer else []
        entries = shards.write(root / folder, whole.rank, slices)
    written = _gather_written((entries, groups), whole, device)
    masks_drawn = torch.tensor(
        [max((d.masks_drawn for d in _dropouts(chunks)), default=0)], device=device
    )
    masks = int(whole.all_reduce(masks_drawn, op="max"))
    with raise_on_all_ranks(whole, device, "write the index", CheckpointError):
        if whole.rank == 0:
            _check_groups_agree([groups_of_rank for _, groups_of_rank in written], whole)
            tensors = indexes.merge(tensors for tensors, _ in written)
            shards.check_files(root, tensors)
            index = Index(indexes.FORMAT, plain_config, groups, plain_record, tensors, masks)
            shards.commit(root, msgspec.json.format(msgspec.json.encode(index), indent=1))
            shards.remove_stale(root, folder)


def load(
    path: Path | str, *, model: nn.Module | Sequence[nn.Module], grid: Grid,
    optimizer: Optimizer | None = None,
    generators: Mapping[str, torch.Generator] | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Load model, optimizer and generators from a checkpoint of any grid; return its record.

    Everything is checked before any value is written, so a load that is refused doesn't change the
    model. The arguments are those of `save`; every rank must call this.

    Raises:
        CheckpointError: on every rank, if the checkpoint is missing, damaged, or of another model.
    """
    root, chunks = Path(path), _as_list(model)
    whole, device = _all_ranks(grid), next(chunks[0].parameters()).device
    plan = RestorePlan()
    groups: list[dict[str, object]] = []
    with raise_on_all_ranks(whole, device, "read the checkpoint", CheckpointError):
        index = indexes.read(root / shards.INDEX)
        _refuse_buffers(chunks)
        _check_same_config(index.config, chunks[0], config)
        reader = shards.Reader(root, index)
        generator_slices = _slice_generators(generators, writes=False)
        runs = list_runs(chunks, grid)
        slices = slice_parameters(runs) + generator_slices
        if optimizer is not None:
            plan = plan_optimizer_restore(optimizer, runs, index.tensors)
            groups = restore_groups(optimizer, index.optimizer)
            slices += plan.slices
        reader.prepare(slices)
    _check_all_wanted(index, slices, whole, device, optimizer is not None)
    with raise_on_all_ranks(whole, device, "read its slices", CheckpointError), torch.no_grad():
        reader.read(slices)
        plan.check()
    for chunk in chunks:
        round_masters(chunk.parameters())
    if optimizer is not None:
        optimizer.load_state_dict({"state": plan.state, "param_groups": groups})
    for generator, tensor_slice in zip((generators or {}).values(), generator_slices, strict=True):
        generator.set_state(tensor_slice.tensor)
    for dropout in _dropouts(chunks):
        dropout.masks_drawn = index.masks
    return index.record


def _as_list(model: nn.Module | Sequence[nn.Module]) -> list[nn.Module]:
    return [model] if isinstance(model, nn.Module) else list(model)


def _dropouts(chunks: Sequence[nn.Module]) -> list[Dropout]:
    return [dropout for chunk in chunks for dropout in dropouts_of(chunk)]


def _all_ranks(grid: Grid) -> Axis:
    return grid.axis("tensor", "context", "data", "pipeline")


def _to_plain_json(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = msgspec.json.decode(
            msgspec.json.encode(values, enc_hook=_encode_dtype)
        )
    except (TypeError, NotImplementedError) as error:
        raise CheckpointError(f"the {what} is not plain JSON: {error}") from None
    return plain


def _encode_dtype(value: Any) -> str:
    if isinstance(value, torch.dtype):
        return shards.dtype_name(value)
    raise NotImplementedError(f"{type(value).__name__} is no number, string, list or mapping")


def _refuse_buffers(chunks: Sequence[nn.Module]) -> None:
    """Refuse buffers that a state_dict would hold, because a checkpoint holds parameters only."""
    for model in map(model_of, chunks):
        saved = {name for name, _ in model.named_buffers()} & model.state_dict().keys()
        if saved:
            raise CheckpointError(
                f"the model has the buffer {min(saved)}, and a checkpoint holds parameters only: "
                "register it with persistent=False if it is computed, or make it a parameter with "
                "requires_grad=False"
            )


def _slice_generators(
    generators: Mapping[str, torch.Generator] | None, *, writes: bool
) -> list[TensorSlice]:
    states = {f"generator/{name}": g.get_state() for name, g in (generators or {}).items()}
    return [TensorSlice(name, s, tuple(s.shape), (0,), writes) for name, s in states.items()]


def _gather_written(written: Written, whole: Axis, device: torch.device) -> list[Written]:
    """Return every rank's entries and settings, gathered as JSON in one padded all-gather."""
    content = msgspec.json.encode(written)
    lengths = whole.all_gather(torch.tensor([len(content)], device=device)).tolist()
    row = torch.frombuffer(bytearray(content.ljust(max(lengths))), dtype=torch.uint8).to(device)
    rows = whole.all_gather(row).view(whole.size, -1).cpu()
    return [
        msgspec.json.decode(bytes(rows[i, :n].numpy()), type=Written) for i, n in enumerate(lengths)
    ]


def _check_groups_agree(groups: list[Groups], whole: Axis) -> None:
    """Refuse settings that differ between ranks, since a load gives all ranks rank 0's."""
    for rank, rank_groups in zip(whole.ranks, groups, strict=True):
        if rank_groups != groups[0]:
            both = zip(rank_groups, groups[0], strict=False)
            keys = sorted(
                {k for group, first_group in both for k in group if group[k] != first_group.get(k)}
            )
            raise CheckpointError(
                f"the optimizers' parameter groups differ, in {', '.join(keys) or 'number'}, "
                f"between ranks {whole.ranks[0]} and {rank}, and a load would give both the "
                "former's: make the same groups on every stage, empty ones too"
            )


def _plain_config(chunk: nn.Module, config: Mapping[str, Any] | None) -> dict[str, Any]:
    settings: Any = getattr(model_of(chunk), "config", {}) if config is None else config
    if is_dataclass(settings) and not isinstance(settings, type):
        settings = asdict(settings)
    if not isinstance(settings, Mapping):
        raise CheckpointError(
            f"the model's config is a {type(settings).__name__}: give its settings as a dict, "
            "config={…}, to save and to load"
        )
    return _to_plain_json("config", settings)


def _defaults(chunk: nn.Module) -> dict[str, Any]:
    """Return the default of each setting that a checkpoint of an earlier version may lack."""
    settings = getattr(model_of(chunk), "config", None)
    known = fields(settings) if is_dataclass(settings) else ()
    return {setting.name: setting.default for setting in known if setting.default is not MISSING}


def _check_same_config(
    saved: dict[str, Any], chunk: nn.Module, config: Mapping[str, Any] | None
) -> None:
    current = _plain_config(chunk, config)
    if config is None:
        saved = _to_plain_json("config", _defaults(chunk)) | saved
    keys = sorted((saved.keys() | current.keys()) - _FREE)
    differ = [
        f"{k} = {saved.get(k)} (here {current.get(k)})"
        for k in keys
        if saved.get(k) != current.get(k)
    ]
    if differ:
        raise CheckpointError(
            f"the checkpoint is of another model: {', '.join(differ)}; make the model with these"
        )


def _check_all_wanted(
    index: Index, slices: list[TensorSlice], whole: Axis, device: torch.device, optimizer: bool
) -> None:
    """Refuse a checkpoint with tensors that no rank loads, as it is of another model."""
    wanted = {tensor_slice.name for tensor_slice in slices}
    names = sorted(n for n in index.tensors if optimizer or not n.startswith("optimizer."))
    flags = torch.tensor([n in wanted for n in names], dtype=torch.int32, device=device)
    unwanted = [
        n for n, f in zip(names, whole.all_reduce(flags, op="max").tolist(), strict=True) if not f
    ]
    if unwanted:
        raise CheckpointError(
            f"the checkpoint holds {len(unwanted)} tensors that no rank wants: "
            f"{', '.join(unwanted[:6])}; it was written from another model, optimizer, or with "
            "more generators"
        )
