"""State dicts by the model's own names, whole: what an unsharded model would save and load.

They fit any sharding of the same model, whatever the units, the strategy and the number of ranks,
and the model without FSDP. They cost an all-gather a unit and, on ranks that keep the result, the
whole model's memory; `sharded_state.py` costs neither.

PyTorch: `StateDictType.FULL_STATE_DICT` (fsdp/_state_dict_utils.py) and `optim_state_dict`
(fsdp/_optim_utils.py); `get_model_state_dict` with `full_state_dict=True` for FSDP2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from shardlab.fsdp.flat.parameter import FlatParameter
from shardlab.fsdp.fully_sharded import FSDP


def full_state_dict(model: FSDP, *, keep: bool = True) -> dict[str, Any]:
    """Return what the unsharded model's `state_dict()` would; a collective, unit by unit.

    Parameters come in the shards' dtype, and tied ones as one tensor under each name.

    Args:
        model: on every rank of its axis.
        keep: whether this rank wants the result; one that doesn't returns {} and saves the memory.
    """
    whole: dict[str, Tensor] = {}
    for flat in model.flats:
        gathered = flat.gathered(flat.shard_f)
        if keep:
            whole |= {name: tensor.clone() for name, tensor in gathered.items()}
    if not keep:
        return {}
    rest = model.module.state_dict()
    return {
        name: whole[model.tied[name]] if name in model.tied else rest[name] for name in model.names
    }


def load_full_state_dict(model: FSDP, state: Mapping[str, Any]) -> None:
    """Load what the unsharded model's `state_dict()` returned; no collective: each rank cuts.

    Raises:
        ValueError: names are missing or unknown, or a shape differs; nothing is loaded then.
    """
    missing = [name for name in model.names if name not in state]
    unknown = [name for name in state if name not in model.names]
    if missing or unknown:
        raise ValueError(
            f"the state dict is another model's: missing {missing[:5]}, unknown {unknown[:5]}"
            f" ({len(missing)} and {len(unknown)} in all)"
        )
    for flat in model.flats:
        _check_shapes(flat, state)
    for flat in model.flats:
        with torch.no_grad():
            flat.shard_f.copy_(flat.sliced([state[name] for name in flat.layout.names]))
    rest = {name: state[name] for name in model.names if name not in model.tied}
    model.module.load_state_dict(rest, strict=False)


def full_optimizer_state(model: FSDP, optimizer: Optimizer, *, keep: bool = True) -> dict[str, Any]:
    """Return the optimizer's state by parameter name, in parameter shapes; a collective.

    Form: {"state": {name: {key: tensor or number}}, "elementwise": [keys of tensors in parameter
    shape], "param_groups": [{…, "params": [names]}]}.
    """
    state: dict[str, dict[str, Any]] = {}
    elementwise: set[str] = set()
    for flat in model.flats:
        for key, value in optimizer.state.get(flat.shard_f, {}).items():
            by_name: Mapping[str, Any] = dict.fromkeys(flat.layout.names, value)
            if isinstance(value, Tensor) and value.shape == flat.shard_f.shape:
                elementwise.add(key)
                by_name = flat.gathered(value)
            if keep:
                for name, item in by_name.items():
                    state.setdefault(name, {})[key] = copy(item)
    if not keep:
        return {}
    names = {flat.shard_f: flat.layout.names for flat in model.flats}
    groups = [
        {**group, "params": [name for shard in group["params"] for name in names[shard]]}
        for group in optimizer.param_groups
    ]
    return {"state": state, "elementwise": sorted(elementwise), "param_groups": groups}


def load_full_optimizer_state(model: FSDP, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load what `full_optimizer_state` returned; no collective: each rank cuts.

    Raises:
        ValueError: the state of a parameter is missing, or two parameters of one flat parameter
            come from groups with different settings.
    """
    group_of = {name: group for group in state["param_groups"] for name in group["params"]}
    flats = {flat.shard_f: flat for flat in model.flats}
    for group in optimizer.param_groups:
        names = [name for shard in group["params"] for name in flats[shard].layout.names]
        if absent := [name for name in names if name not in group_of]:
            raise ValueError(f"the optimizer state knows nothing of {absent[:5]}")
        settings = [_settings(group_of[name]) for name in names]
        if any(other != settings[0] for other in settings):
            raise ValueError(
                f"{names[0]} and others were in groups with different settings and share one now; "
                "wrap with a group= that parts them"
            )
        group.update(settings[0])
    for flat in model.flats:
        saved = [state["state"].get(name, {}) for name in flat.layout.names]
        optimizer.state[flat.shard_f] = {
            key: flat.sliced([values[key] for values in saved])
            if key in state["elementwise"]
            else copy(value)
            for key, value in saved[0].items()
        }


def copy(value: Any) -> Any:
    """Return `value`, or a copy of its own if it is a tensor: optimizers write to a step count."""
    return value.clone() if isinstance(value, Tensor) else value


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _check_shapes(flat: FlatParameter, state: Mapping[str, Any]) -> None:
    for name, shape in zip(flat.layout.names, flat.layout.shapes, strict=True):
        if tuple(state[name].shape) != shape:
            raise ValueError(
                f"{name} has shape {shape}, the state dict's {tuple(state[name].shape)}"
            )
