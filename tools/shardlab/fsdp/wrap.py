"""From a model and its chosen modules to units: who owns which parameter, and which lie together.

A parameter belongs to the nearest chosen module around it; what none encloses is the root's. Tied
parameters must have one owner: leave both in the root, or choose a module that holds both.

Within a unit, parameters of one dtype that all train, or are all frozen, lie in one flat parameter:
one all-gather, one reduce-scatter, one tensor for the optimizer. Frozen ones lie apart, since they
are gathered and never reduced, and an optimizer with weight decay must not see them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from shardlab.comm import Axis
from shardlab.fsdp.flat.gradient import FlatGradient
from shardlab.fsdp.flat.parameter import FlatParameter
from shardlab.fsdp.mixed_precision import MixedPrecision
from shardlab.fsdp.unit import Place, Unit
from shardlab.layers.sharding import copies_of

Assigned = dict[str, tuple[nn.Module, list[Place]]]


def assign(root: nn.Module, chosen: Iterable[nn.Module]) -> Assigned:
    """Return each unit's module and slots by its name, the root ("") first.

    Raises:
        ValueError: a chosen module is not in the model, or a parameter has two owners.
    """
    names = {id(module): name for name, module in root.named_modules()}
    chosen = list(chosen)
    wanted = {id(module) for module in chosen}
    if strangers := [type(module).__name__ for module in chosen if id(module) not in names]:
        raise ValueError(f"units={strangers} are not modules of the model that is to be sharded")
    units: Assigned = {"": (root, [])}
    owner_at: dict[str, str] = {}
    owners: dict[int, tuple[str, str]] = {}
    filled: set[tuple[int, str]] = set()
    for path, module in root.named_modules(remove_duplicate=False):
        above = owner_at[path.rpartition(".")[0]] if path else ""
        owner = owner_at[path] = names[id(module)] if id(module) in wanted else above
        units.setdefault(owner, (module, []))
        for attribute, parameter in module._parameters.items():
            if parameter is None:
                continue
            name = f"{path}.{attribute}" if path else attribute
            first = owners.setdefault(id(parameter), (owner, name))
            if first[0] != owner:
                raise ValueError(_two_owners(first, (owner, name)))
            if (id(module), attribute) not in filled:
                filled.add((id(module), attribute))
                units[owner][1].append(Place(module, attribute, name, parameter))
    return units


def build(
    name: str, module: nn.Module, slots: list[Place], *,
    axes: tuple[Axis, Axis], precision: MixedPrecision, device: torch.device | None,
    tied: nn.Parameter | None = None,
) -> Unit:  # fmt: skip
    """Cut the parameters in `slots` along the first of `axes`; return the unit they make.

    `tied`, of which another stage holds a copy, lies alone, so that both stages cut it alike.
    The shards are registered on `module` as `flat_shard`, `flat_shard_1` … instead.

    Raises:
        ValueError: an expert has its copies on other ranks than `axes`.
    """
    shard_axis, replicate = axes
    kinds: dict[tuple[torch.dtype, bool, bool], dict[int, tuple[str, nn.Parameter]]] = {}
    for slot in slots:
        p = slot.parameter
        _refuse_others(slot.name, p, axes)
        kinds.setdefault((p.dtype, p.requires_grad, p is tied), {}).setdefault(
            id(p), (slot.name, p)
        )
    flats, gradients = [], []
    for number, ((own, trains, _), named) in enumerate(kinds.items()):
        attribute = f"flat_shard_{number}" if number else "flat_shard"
        path = f"{name}.{attribute}" if name else attribute
        dtype = precision.param_dtype or own
        flat = FlatParameter(path, list(named.values()), shard_axis, dtype, device)
        flats.append(flat)
        module.register_parameter(attribute, flat.shard_f)
        if trains:
            gradients.append(FlatGradient(flat, replicate, precision.reduce_dtype or dtype))
    return Unit(name, module, flats, gradients, slots)


def _refuse_others(name: str, parameter: nn.Parameter, axes: tuple[Axis, Axis]) -> None:
    """Refuse an expert that isn't the same on all ranks: its pieces would be other experts'."""
    copies, ranks = copies_of(parameter), max(axes, key=lambda axis: axis.size).ranks
    if copies is None or copies.ranks == ranks or copies.size == len(ranks) == 1:
        return
    raise ValueError(
        f"{name} has copies on ranks {list(copies.ranks)}, and FSDP would cut it over ranks "
        f"{list(ranks)}: choose Grid(expert=1) with one tensor rank, or StepGradients instead"
    )


def _two_owners(first: tuple[str, str], second: tuple[str, str]) -> str:
    units = " and ".join(f"unit {owner or '(root)'}" for owner in (first[0], second[0]))
    return (
        f"{first[1]} and {second[1]} are one tied parameter in two units, {units}; it must be "
        "gathered and reduced by one: choose a module that holds both, or leave both to the root"
    )
