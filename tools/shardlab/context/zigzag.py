"""Which tokens a rank has, and which of another rank's keys its queries see.

Under a causal mask a late token sees more keys than an early one. If a sequence is cut into n runs,
one for each rank, the last rank computes nearly twice the mean. It is therefore cut into 2n chunks,
and rank r has chunks r and 2n − 1 − r. Every rank then computes the same number of pairs of queries
and keys, in every step of the ring too. Megatron has `get_batch_on_this_cp_rank` in
megatron/core/utils.py.

Dimensions: S sequence, s = S / n this rank's share of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shardlab.grid.rules import check_divides


def check_sequence(tokens: int, ranks: int) -> None:
    """Refuse a whole sequence that does not form 2n equal chunks.

    Raises:
        ValueError: says which lengths work.
    """
    if tokens == 0 or tokens % (2 * ranks):
        below = tokens // (2 * ranks) * 2 * ranks
        choices = f"{below} or {below + 2 * ranks}" if below else f"{2 * ranks}"
        raise ValueError(
            f"context axis of size {ranks} cuts a sequence into {2 * ranks} equal chunks, two a "
            f"rank; {tokens} tokens don't form them: choose {choices}"
        )


def check_heads(kind: str, ranks: int, heads: int, what: str) -> None:
    """Refuse heads of a tensor rank that Ulysses can't distribute equally; other kinds cut none.

    Raises:
        ValueError: says which numbers of ranks work.
    """
    if kind == "ulysses":
        check_divides("context", ranks, heads, f"{what} of a tensor rank (ring cuts none)")


def positions(tokens: int, rank: int, ranks: int) -> Tensor:
    """Return the positions of `rank`'s tokens in a sequence of S tokens, in order: [s]."""
    check_sequence(tokens, ranks)
    chunks = torch.arange(tokens).view(2 * ranks, -1)
    return chunks[[rank, 2 * ranks - 1 - rank]].flatten()


def order(tokens: int, ranks: int) -> Tensor:
    """Return the positions of all ranks' tokens, one rank after another: [S]."""
    return torch.cat([positions(tokens, rank, ranks) for rank in range(ranks)])


def visible_slices(query_rank: int, key_rank: int, length: int) -> tuple[slice, slice, bool]:
    """Return which of a rank's queries see which of another rank's keys, and whether causally.

    Every query sees an earlier rank's first chunk. The second chunk of queries sees all keys of a
    later rank. Both cases are s · s/2 pairs. The other pairs are in the queries' future.

    Args:
        query_rank: the queries' rank on the context axis.
        key_rank: the keys' rank on the context axis.
        length: s.

    Returns:
        the slice of the queries, the slice of the keys, and whether attention between them is
        causal.
    """
    all_tokens, half = slice(0, length), length // 2
    if query_rank == key_rank:
        return all_tokens, all_tokens, True
    return (
        (all_tokens, slice(0, half), False)
        if key_rank < query_rank
        else (slice(half, length), all_tokens, False)
    )
