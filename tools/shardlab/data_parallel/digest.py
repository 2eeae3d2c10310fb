"""A 64-bit digest of a tensor's content, computed on its device, at memory bandwidth.

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
from functools import cache

import torch
from torch import Tensor

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
