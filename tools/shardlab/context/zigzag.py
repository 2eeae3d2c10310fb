"""Which tokens a rank has, and what its queries see of another rank's keys.

Under a causal mask a late token sees more than an early one. Cut a sequence into as many runs as
there are ranks and the last rank has nearly twice the mean to compute. So it is cut into 2n chunks,
and rank r has chunks r and 2n − 1 − r: every rank pairs as many queries with keys as any other, in
every step of the ring too. `get_batch_on_this_cp_rank` in megatron/core/utils.py.

Dimensions: S sequence, s = S / n this rank's share of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def check_sequence(tokens: int, ranks: int) -> None:
    """Refuse a whole sequence that does not form 2n equal chunks.

    Raises:
        ValueError: says which lengths would do.
    """
    if tokens == 0 or tokens % (2 * ranks):
        below = tokens // (2 * ranks) * 2 * ranks
        near = f"{below} or {below + 2 * ranks}" if below else f"{2 * ranks}"
        raise ValueError(
            f"context axis of size {ranks} cuts a sequence into {2 * ranks} equal chunks, two a "
            f"rank; {tokens} tokens don't form them: choose {near}"
        )


def positions(tokens: int, rank: int, ranks: int) -> Tensor:
    """Return where in a sequence of S tokens those of `rank` stand, in order: [s]."""
    check_sequence(tokens, ranks)
    chunks = torch.arange(tokens).view(2 * ranks, -1)
    return chunks[[rank, 2 * ranks - 1 - rank]].flatten()


def order(tokens: int, ranks: int) -> Tensor:
    """Return the positions of all ranks' tokens, one rank after another: [S]."""
    return torch.cat([positions(tokens, rank, ranks) for rank in range(ranks)])


def seen(mine: int, other: int, length: int) -> tuple[slice, slice, bool]:
    """Return which queries of rank `mine` see which keys of rank `other`, and if causally.

    Of an earlier rank every query sees the first chunk; of a later one the second chunk of queries
    sees everything. Either is s · s/2 pairs. What is left out is in nobody's past.

    Args:
        mine, other: places on the context axis.
        length: s.
    """
    every, half = slice(0, length), length // 2
    if mine == other:
        return every, every, True
    return (every, slice(0, half), False) if other < mine else (slice(half, length), every, False)


def documents_of(lengths: Sequence[int]) -> Tensor:
    """Return which document each token of a packed sequence belongs to: [S]; one may be empty.

    Raises:
        ValueError: a length is negative, or there is no token.
    """
    if not lengths or min(lengths) < 0 or not sum(lengths):
        raise ValueError(f"documents of {list(lengths)} tokens: lengths are 0 or more, one above 0")
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def same_document(documents_BS: Tensor, queries: Tensor, keys: Tensor, *, causal: bool) -> Tensor:
    """Return which of the tokens at `queries` see which at `keys`: [B, 1, queries, keys]."""
    queries, keys = (at.to(documents_BS.device) for at in (queries, keys))
    same = documents_BS[:, queries].unsqueeze(2) == documents_BS[:, keys].unsqueeze(1)
    if causal:
        same = same & (queries.unsqueeze(1) >= keys)
    return same.unsqueeze(1)
