"""State dicts of shards: each rank saves what it holds, and any number of ranks can load it.

A shard is an interval of the flat parameter, whose positions don't depend on the number of ranks
(`flat_layout.py`). So a rank that loads works out which old ranks hold its interval and reads only
those: nothing is gathered, on saving or loading. The units must be cut the same way; between
different ones go through `full_state.py`.

PyTorch: `StateDictType.SHARDED_STATE_DICT` (fsdp/_state_dict_utils.py) with
torch.distributed.checkpoint, which does the same with a planner and DTensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from shardlab.fsdp.flat.layout import FlatLayout, Overlap
from shardlab.fsdp.flat.parameter import FlatParameter
from shardlab.fsdp.full_state import copy
from shardlab.fsdp.fully_sharded import FSDP

State = dict[str, Any]


def sharded_state_dict(model: FSDP, optimizer: Optimizer | None = None) -> State:
    """Return this rank's shards, and its part of the optimizer's state; no collective.

    Tensors are the living ones: save or clone them before the next step. Replicas (HYBRID_SHARD)
    return the same; one of each set need save.

    Form: {"size", "flats": {name: {"layout", "shard", "optimizer": {key: value}}}, "rest",
    "param_groups"}: plain values and tensors, so that torch.load(weights_only=True) reads it.
    """
    flats = {}
    for flat in model.flats:
        layout = flat.layout
        flats[flat.name] = {
            "layout": {
                "names": list(layout.names),
                "shapes": [list(shape) for shape in layout.shapes],
                "offsets": list(layout.offsets),
                "numel": layout.numel,
            },
            "shard": flat.shard_f.detach(),
            "optimizer": dict(optimizer.state.get(flat.shard_f, {})) if optimizer else {},
        }
    whole = model.module.state_dict()
    names = {flat.shard_f: flat.name for flat in model.flats}
    groups = [
        {**group, "params": [names[shard] for shard in group["params"]]}
        for group in (optimizer.param_groups if optimizer else [])
    ]
    return {
        "size": model.shard_axis.size,
        "flats": flats,
        "rest": {name: whole[name] for name in model.names if name not in model.tied},
        "param_groups": groups,
    }


def load_sharded_state_dict(
    model: FSDP, read: Callable[[int], Mapping[str, Any]], optimizer: Optimizer | None = None
) -> None:
    """Load shards that any number of ranks saved; no collective.

    Args:
        model: whose units are cut as those that were saved.
        read: returns what rank r of the old axis saved; asked once for each rank that is needed.
        optimizer: to load the state of, too.

    Raises:
        ValueError: the saved flat parameters are others.
    """
    read = cache(read)
    first = read(0)
    if unlike := sorted(set(first["flats"]) ^ {flat.name for flat in model.flats}):
        raise ValueError(
            f"the shards are of other flat parameters: {unlike[:5]} stand on one side only; shards "
            "go back into units cut the same way, a full state dict into any"
        )
    for flat in model.flats:
        saved = first["flats"][flat.name]
        overlaps = list(
            _layout(saved["layout"], first["size"]).overlaps(flat.layout, flat.axis.rank)
        )
        mine = partial(_joined, flat, overlaps, read)
        with torch.no_grad():
            flat.shard_f.copy_(mine(lambda theirs: theirs["shard"]))
        if optimizer is not None:
            optimizer.state[flat.shard_f] = {
                key: mine(partial(_optimizer_value, key)) if _is_cut(value, saved) else copy(value)
                for key, value in saved["optimizer"].items()
            }
    model.module.load_state_dict(first["rest"], strict=False)
    if optimizer is not None:
        for group, settings in zip(optimizer.param_groups, first["param_groups"], strict=True):
            group.update({key: value for key, value in settings.items() if key != "params"})


def _joined(
    flat: FlatParameter,
    overlaps: list[Overlap],
    read: Callable[[int], Mapping[str, Any]],
    tensor_of: Callable[[Mapping[str, Any]], Tensor],
) -> Tensor:
    """Put this rank's [f] together from the pieces of it that the old ranks' shards hold."""
    mine_f = torch.zeros_like(flat.shard_f, requires_grad=False)
    for rank, source, target, length in overlaps:
        theirs = tensor_of(read(rank)["flats"][flat.name])
        mine_f[target : target + length] = theirs[source : source + length]
    return mine_f


def _optimizer_value(key: str, saved: Mapping[str, Any]) -> Tensor:
    value: Tensor = saved["optimizer"][key]
    return value


def _is_cut(value: Any, saved: Mapping[str, Any]) -> bool:
    """Whether an optimizer's value has one number an element, so is cut as the shard is."""
    return isinstance(value, Tensor) and value.shape == saved["shard"].shape


def _layout(saved: Mapping[str, Any], size: int) -> FlatLayout:
    shapes = tuple(tuple(shape) for shape in saved["shapes"])
    return FlatLayout(tuple(saved["names"]), shapes, tuple(saved["offsets"]), size, saved["numel"])
