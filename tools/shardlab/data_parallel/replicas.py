"""Data-parallel ranks start from one model: make it so, or prove it.

Averaged gradients keep equal replicas equal and different ones different for ever, with a loss that
still falls. So a run begins by copying one rank's parameters to all, or, where every rank can draw
them alike, by comparing digests: eight bytes a parameter instead of the parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shardlab.comm import Axis
from shardlab.data_parallel.digest import digest
from shardlab.layers.draw import seed_from

Named = Sequence[tuple[str, Tensor]]


class ReplicaError(RuntimeError):
    """The replicas of one model differ; names the first parameters and ranks that do."""


def broadcast(tensors: Named, axis: Axis, *, source: int = 0) -> None:
    """Give every rank of `axis` the values of rank `source`, in place.

    PyTorch's DDP does so in its constructor (`_sync_module_states`), Megatron on request
    (`broadcast_params`).

    Raises:
        ReplicaError: the ranks' names, shapes or dtypes differ, or what is frozen does.
    """
    _same_structure(tensors, axis)
    with torch.no_grad():
        for _, tensor in tensors:
            for kept in dict.fromkeys((tensor, getattr(tensor, "master", tensor))):  # in this order
                kept.copy_(axis.broadcast(kept.detach(), source=source))


def verify(tensors: Named, axis: Axis) -> None:
    """Check that every rank of `axis` holds the same names, shapes, dtypes and bits.

    Raises:
        ReplicaError: on every rank alike, with the first parameters that differ, and where.
    """
    _same_structure(tensors, axis)
    if not tensors:
        return
    rows = _gather(torch.stack([digest(tensor) for _, tensor in tensors]), tensors, axis)
    wrong = [
        (name, [axis.ranks[r] for r in range(axis.size) if rows[r, i] != rows[0, i]])
        for i, (name, _) in enumerate(tensors)
        if bool((rows[:, i] != rows[0, i]).any())
    ]
    if not wrong:
        return
    lines = [f"{len(wrong)} of {len(tensors)} parameters differ between replicas:"]
    lines += [
        f"  {name}: ranks {ranks} hold other values than rank {axis.ranks[0]}"
        for name, ranks in wrong[:5]
    ]
    lines.append("  Draw them from the same seed on every data rank, or broadcast them first.")
    raise ReplicaError("\n".join(lines))


def _same_structure(tensors: Named, axis: Axis) -> None:
    forms = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype}{'' if tensor.requires_grad else ' frozen'}"
        for name, tensor in tensors
    ]
    counts = _gather([len(forms)], tensors, axis)[:, 0]
    if bool((counts != counts[0]).any()):
        raise ReplicaError(
            f"the replicas on ranks {list(axis.ranks)} hold {counts.tolist()} parameters; "
            "build the same model on every data rank"
        )
    rows = _gather([seed_from(form) for form in forms], tensors, axis)
    for i, form in enumerate(forms):
        others = [axis.ranks[r] for r in range(axis.size) if rows[r, i] != rows[axis.rank, i]]
        if others:
            raise ReplicaError(
                f"parameter {i} is {form} on rank {axis.ranks[axis.rank]} and another on ranks "
                f"{others}; build the same model on every data rank, in the same order"
            )


def _gather(mine: list[int] | Tensor, tensors: Named, axis: Axis) -> Tensor:
    """Return every rank's numbers, [axis.size, len(mine)]."""
    device = tensors[0][1].device if tensors else torch.device("cpu")
    row = torch.as_tensor(mine, dtype=torch.int64, device=device)
    return axis.all_gather(row).view(axis.size, len(mine)).cpu()
