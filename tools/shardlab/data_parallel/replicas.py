"""Makes data-parallel ranks start from the same model, or checks that they do.

Averaged gradients keep equal replicas equal, but different replicas stay different for ever, while
the loss still falls. So a run begins by copying one rank's parameters to all. If every rank can
draw the same parameters, it compares digests instead, which are eight bytes a parameter.

A 64-bit digest of a tensor's content, computed on its device, at memory bandwidth.

The bytes are read as rows of 32-bit words. A row's digest is the sum of its words, each times the
multiplier of its position, modulo 2^64. The rows' digests are summed in the same way with other
multipliers, until one number is left. Such sums don't depend on the order of a device's additions.

- One differing word always changes the digest: multipliers are odd, so no product with one is 0.
- So do two words that exchange places in a row or a column: no two multipliers differ by a multiple
  of 2^33, and no two words by a multiple of 2^32.
- Other differences are missed with a probability of at most one in 2^32. The digest doesn't protect
  against an attacker who searches for two tensors with the same digest.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from shardlab.comm import Axis
from shardlab.layers.init import seed_from

_ROW = 1 << 12  # words
_CHUNK_WORDS = {"cpu": 1 << 16}  # words whose products stay in a core's cache
_GPU_CHUNK_WORDS = 1 << 24  # so many that the launch of a kernel is negligible


def digest(tensor: Tensor) -> Tensor:
    """Return an int64 [] on the tensor's device, which depends on the bytes and their order.

    Args:
        tensor: any dtype, shape and strides; −0.0 and 0.0 differ, and NaNs may differ.
    """
    content = tensor.detach().contiguous().view(-1).view(torch.uint8)
    if content.storage_offset() % 4:
        content = content.clone()
    even = content.numel() // 4 * 4
    words = _sum_rows(content[:even].view(torch.int32), 0)
    words = torch.cat([words, content[even:].long()])
    level = 0
    while words.numel() > 1:
        level += 1
        words = _sum_rows(words, level)
    return words[0]


def _sum_rows(words: Tensor, level: int) -> Tensor:
    multipliers = _draw_multipliers(level, words.device)
    even = words.numel() // _ROW * _ROW
    pieces = torch.split(words[:even], _CHUNK_WORDS.get(words.device.type, _GPU_CHUNK_WORDS))
    rows = [*(piece.view(-1, _ROW) for piece in pieces), words[even:].view(1, -1)]
    return torch.cat([(row * multipliers[: row.shape[1]]).sum(1) for row in rows])


@cache
def _draw_multipliers(level: int, device: torch.device) -> Tensor:
    dice = random.Random(level)  # noqa: S311  (no secret: every rank must make the same)
    numbers = [dice.getrandbits(63) << 1 | 1 for _ in range(_ROW)]
    return torch.tensor(
        [number - (1 << 63) for number in numbers], dtype=torch.int64, device=device
    )


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
