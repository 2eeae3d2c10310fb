"""Packed sequences: several documents in one, of which a token sees its own alone.

Dimensions: B batch, S tokens of a whole sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def documents_of(lengths: Sequence[int]) -> Tensor:
    """Return which document each token of a packed sequence belongs to: [S]; one may be empty.

    Raises:
        ValueError: a length is negative, or there is no token.
    """
    if not lengths or min(lengths) < 0 or not sum(lengths):
        raise ValueError(f"documents of {list(lengths)} tokens: lengths are 0 or more, one above 0")
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def seen_in(
    documents_BS: Tensor, queries: Tensor | None = None, keys: Tensor | None = None
) -> Tensor:
    """Return which of the tokens at `queries` see which at `keys`: bool [B, 1, queries, keys].

    Args:
        documents_BS: each token's document.
        queries, keys: positions, all unless given.
    """
    every = torch.arange(documents_BS.shape[1])
    rows, columns = (every if at is None else at for at in (queries, keys))
    same = documents_BS[:, rows].unsqueeze(2) == documents_BS[:, columns].unsqueeze(1)
    return (same & (rows.unsqueeze(1) >= columns).to(same.device)).unsqueeze(1)
