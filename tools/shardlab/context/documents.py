"""Packed sequences: several documents in one sequence, where a token sees only its own document.

Dimensions: B batch, S tokens of a whole sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def document_ids(lengths: Sequence[int]) -> Tensor:
    """Return the document of each token of a packed sequence: [S].

    Args:
        lengths: tokens of each document; 0 is allowed.

    Raises:
        ValueError: a length is negative, or there is no token.
    """
    if not lengths or min(lengths) < 0 or not sum(lengths):
        raise ValueError(f"documents of {list(lengths)} tokens: lengths are 0 or more, one above 0")
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


documents_of = document_ids  # its name before 0.4


def document_mask(
    documents_BS: Tensor, queries: Tensor | None = None, keys: Tensor | None = None
) -> Tensor:
    """Return the causal mask of packed sequences: bool [B, 1, queries, keys], true where visible.

    Args:
        documents_BS: each token's document.
        queries: the queries' positions; by default all.
        keys: the keys' positions; by default all.
    """
    positions = torch.arange(documents_BS.shape[1])
    rows = positions if queries is None else queries
    columns = positions if keys is None else keys
    same = documents_BS[:, rows].unsqueeze(2) == documents_BS[:, columns].unsqueeze(1)
    return (same & (rows.unsqueeze(1) >= columns).to(same.device)).unsqueeze(1)
