"""Makes units of a model and its chosen modules: assigns parameters to units and flat parameters.

A parameter belongs to the nearest chosen module that contains it, or else to the root. Tied
parameters must have one owner: leave both in the root, or choose a module that contains both.

Within a unit, trainable parameters of one dtype are in one flat parameter, with one all-gather, one
reduce-scatter and one tensor for the optimizer. Frozen parameters are in another one, because they
are gathered but never reduced, and an optimizer with weight decay must not change them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from shardlab.comm import Axis
from shardlab.fsdp.flat_gradient import FlatGradient
from shardlab.fsdp.flat_parameter import FlatParameter
from shardlab.fsdp.mixed_precision import MixedPrecision
from shardlab.fsdp.unit import ParameterSlot, Unit
from shardlab.layers.sharding import copies_of

Assigned = dict[str, tuple[nn.Module, list[ParameterSlot]]]


def assign_parameters(root: nn.Module, chosen: Iterable[nn.Module]) -> Assigned:
    """Return each unit's module and parameter slots, by the unit's name, the root ("") first.

    Raises:
        ValueError: a chosen module is not in the model, or a parameter has two owners.
    """
    names = {id(module): name for name, module in root.named_modules()}
    chosen = list(chosen)
    wanted = {id(module) for module in chosen}
    if unknown := [type(module).__name__ for module in chosen if id(module) not in names]:
        raise ValueError(f"units={unknown} are not modules of the model that is to be sharded")
    units: Assigned = {"": (root, [])}
    owner_at: dict[str, str] = {}
    owners: dict[int, tuple[str, str]] = {}
    filled: set[tuple[int, str]] = set()
    for path, module in root.named_modules(remove_duplicate=False):
        enclosing = owner_at[path.rpartition(".")[0]] if path else ""
        owner = owner_at[path] = names[id(module)] if id(module) in wanted else enclosing
        units.setdefault(owner, (module, []))
        for attribute, parameter in module._parameters.items():
            if parameter is None:
                continue
            name = f"{path}.{attribute}" if path else attribute
            first_owner = owners.setdefault(id(parameter), (owner, name))
            if first_owner[0] != owner:
                raise ValueError(_tied_error(first_owner, (owner, name)))
            if (id(module), attribute) not in filled:
                filled.add((id(module), attribute))
                units[owner][1].append(ParameterSlot(module, attribute, name, parameter))
    return units


def build_unit(
    name: str, module: nn.Module, slots: list[ParameterSlot], *,
    axes: tuple[Axis, Axis], precision: MixedPrecision, device: torch.device | None,
    tied: nn.Parameter | None = None,
) -> Unit:  # fmt: skip
    """Shard the parameters in `slots` over the first of `axes`; return their unit.

    `tied`, of which another stage has a copy, gets a flat parameter of its own, so that both stages
    shard it in the same way. Instead of the parameters, the shards are registered on `module` as
    `flat_shard`, `flat_shard_1` …

    Raises:
        ValueError: an expert has its copies on other ranks than `axes`.
    """
    shard_axis, replicate = axes
    groups: dict[tuple[torch.dtype, bool, bool], dict[int, tuple[str, nn.Parameter]]] = {}
    for slot in slots:
        p = slot.parameter
        _check_copies(slot.name, p, axes)
        groups.setdefault((p.dtype, p.requires_grad, p is tied), {}).setdefault(
            id(p), (slot.name, p)
        )
    flats, gradients = [], []
    for number, ((dtype_of_shard, trains, _), named_parameters) in enumerate(groups.items()):
        attribute = f"flat_shard_{number}" if number else "flat_shard"
        path = f"{name}.{attribute}" if name else attribute
        dtype = precision.param_dtype or dtype_of_shard
        flat = FlatParameter(path, list(named_parameters.values()), shard_axis, dtype, device)
        flats.append(flat)
        module.register_parameter(attribute, flat.shard_f)
        if trains:
            gradients.append(FlatGradient(flat, replicate, precision.reduce_dtype or dtype))
    return Unit(name, module, flats, gradients, slots)


def _check_copies(name: str, parameter: nn.Parameter, axes: tuple[Axis, Axis]) -> None:
    """Refuse an expert that isn't the same on all ranks, which would mix different experts."""
    copies, ranks = copies_of(parameter), max(axes, key=lambda axis: axis.size).ranks
    if copies is None or copies.ranks == ranks or copies.size == len(ranks) == 1:
        return
    raise ValueError(
        f"{name} has copies on ranks {list(copies.ranks)}, and FSDP would cut it over ranks "
        f"{list(ranks)}: choose Grid(expert=1) with one tensor rank, or StepGradients instead"
    )


def _tied_error(first: tuple[str, str], second: tuple[str, str]) -> str:
    units = " and ".join(f"unit {owner or '(root)'}" for owner in (first[0], second[0]))
    return (
        f"{first[1]} and {second[1]} are one tied parameter in two units, {units}; it must be "
        "gathered and reduced by one: choose a module that holds both, or leave both to the root"
    )
