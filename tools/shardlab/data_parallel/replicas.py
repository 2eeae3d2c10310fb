"""Makes data-parallel ranks start from the same model, or checks that they do.

Averaged gradients keep equal replicas equal, but different replicas stay different for ever, while
the loss still falls. So a run begins by copying one rank's parameters to all. If every rank can
draw the same parameters, it compares digests instead, which are eight bytes a parameter.
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
    """Raised when the replicas of a model differ; names the first parameters and the ranks."""


def broadcast(tensors: Named, axis: Axis, *, source: int = 0) -> None:
    """Give every rank of `axis` the values of rank `source`, in place.

    PyTorch's DDP does so in its constructor (`_sync_module_states`), Megatron on request
    (`broadcast_params`).

    Raises:
        ReplicaError: the ranks' names, shapes or dtypes differ, or the sets of frozen parameters.
    """
    _check_same_structure(tensors, axis)
    with torch.no_grad():
        for _, tensor in tensors:
            # The tensor first, then its master.
            for target in dict.fromkeys((tensor, getattr(tensor, "master", tensor))):
                target.copy_(axis.broadcast(target.detach(), source=source))


def verify(tensors: Named, axis: Axis) -> None:
    """Check that every rank of `axis` holds the same names, shapes, dtypes and bits.

    Raises:
        ReplicaError: on every rank; names the first parameters that differ, and the ranks.
    """
    _check_same_structure(tensors, axis)
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


def _check_same_structure(tensors: Named, axis: Axis) -> None:
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
        differing = [axis.ranks[r] for r in range(axis.size) if rows[r, i] != rows[axis.rank, i]]
        if differing:
            raise ReplicaError(
                f"parameter {i} is {form} on rank {axis.ranks[axis.rank]} and another on ranks "
                f"{differing}; build the same model on every data rank, in the same order"
            )


def _gather(numbers: list[int] | Tensor, tensors: Named, axis: Axis) -> Tensor:
    """Return every rank's numbers, [axis.size, len(mine)]."""
    device = tensors[0][1].device if tensors else torch.device("cpu")
    row = torch.as_tensor(numbers, dtype=torch.int64, device=device)
    return axis.all_gather(row).view(axis.size, len(numbers)).cpu()
