"""Which tokens a rank has, and what its queries see of another rank's keys.

Under a causal mask a late token sees more than an early one. Cut a sequence into as many runs as
there are ranks and the last rank has nearly twice the mean to compute. So it is cut into 2n chunks,
and rank r has chunks r and 2n − 1 − r: every rank pairs as many queries with keys as any other, in
every step of the ring too. `get_batch_on_this_cp_rank` in megatron/core/utils.py.

Dimensions: S sequence, s = S / n this rank's share of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shardlab.grid.rules import check_divides


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


def check_heads(kind: str, ranks: int, heads: int, what: str) -> None:
    """Refuse heads of a tensor rank that can't be dealt out, where the kind deals them out.

    Raises:
        ValueError: says how many ranks would do.
    """
    if kind == "ulysses":
        check_divides("context", ranks, heads, f"{what} of a tensor rank (ring cuts none)")


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
