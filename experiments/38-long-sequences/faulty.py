"""Lab 06: two functions, each with one fault for you to find and fix, and your predictions.

`attend.py` shows what the functions do; `grade_faulty.py` says whether they are right.

B sequences, n context ranks, s = S / n tokens of one rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shardlab.comm import Axis

# Before you run attend.py: KiB that a rank sends in one attention, forward and backward; the work
# of the slowest rank as a multiple of the mean, for each cut; and the most ranks that Ulysses takes.
PREDICTED = {
    "ring": (None, None),
    "all-gather": (None, None),
    "ulysses": (None, None),
    "in runs": None,
    "zig-zag": None,
    "most ranks": None,
}


def visible(rank: int, owner: int, share: int, ranks: int) -> Tensor:
    """Return which keys of `owner` the queries of `rank` attend to: bool [s queries, s keys].

    Each rank has its tokens in the order of the zig-zag cut. A query attends to the keys up to its
    own position in the sequence.

    Args:
        rank: the rank that has the queries.
        owner: the rank that has the keys.
        share: s, an even number.
        ranks: n.
    """
    queries = rank * share + torch.arange(share)
    keys = owner * share + torch.arange(share)
    return queries.unsqueeze(1) >= keys


def loss(losses_BS: Tensor, counts_BS: Tensor, axis: Axis) -> Tensor:
    """Return the number, without dimensions, on which this rank calls backward.

    After backward, each gradient is replaced by its *mean* over the ranks. That mean must be the
    gradient of the mean loss of all counted tokens, of all ranks. On some ranks no token may count.

    Args:
        losses_BS: the loss of each of this rank's tokens, [B, s].
        counts_BS: 1 where a token counts, 0 where it is padding or belongs to a prompt, [B, s].
        axis: the context axis: `axis.size` is n, and `axis.all_reduce(x)` returns the sum of the
            ranks' x, which has no gradient.
    """
    return (losses_BS * counts_BS).sum() / counts_BS.sum()
