"""A ring all-reduce, message by message, and the bytes that each rank sends.

The ranks are rows of one process: what counts is the algorithm, not who runs it. Patarasuk and Yuan
(2009) show that no algorithm sends less. First each rank passes a piece on and adds the one that
comes (n - 1 times: a reduce-scatter), then it passes sums on (n - 1 times: an all-gather).

Dimensions: N ranks, K elements of a piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from costlab.counted import counted
from costlab.result import Metric

PIECE = 256


def rings() -> Iterator[Metric]:
    """Bytes that a rank sends for an all-reduce and for its first half, by its payload."""
    for ranks in (2, 4, 8):
        scattered, whole, payload = ring(ranks)
        yield counted(f"ring.n{ranks}.all_reduce.sent", whole / payload, "ratio")
        yield counted(f"ring.n{ranks}.reduce_scatter.sent", scattered / payload, "ratio")
        formula = 2 * (ranks - 1) / ranks
        yield counted(f"ring.n{ranks}.formula", formula, "ratio", how="derived")
        yield counted(f"ring.n{ranks}.halves", scattered / whole, "ratio")


def ring(ranks: int) -> tuple[int, int, int]:
    """Reduce over a ring of `ranks`; return the bytes a rank sent after each half, and the payload.

    Raises:
        ArithmeticError: the result isn't the sum, or the ranks sent differently much.
    """
    generator = torch.Generator().manual_seed(ranks)
    x_NNK = torch.randint(100, (ranks, ranks, PIECE), generator=generator)
    expected = x_NNK.sum(0)
    sent = [0] * ranks
    for step in range(ranks - 1):
        _pass_on(x_NNK, sent, step, adding=True)
    half = list(sent)
    for step in range(ranks - 1):
        _pass_on(x_NNK, sent, step - 1, adding=False)
    if any(not torch.equal(x_NK, expected) for x_NK in x_NNK) or len(set(sent)) > 1:
        raise ArithmeticError(f"a ring of {ranks} did not reduce: sent {sent}")
    return half[0], sent[0], x_NNK[0].nbytes


def _pass_on(x_NNK: Tensor, sent: list[int], step: int, *, adding: bool) -> None:
    """Let each rank send one piece to the next, all at once."""
    ranks = len(sent)
    messages = [(rank, (rank - step) % ranks) for rank in range(ranks)]
    pieces = [x_NNK[rank, piece].clone() for rank, piece in messages]
    for (rank, piece), values_K in zip(messages, pieces, strict=True):
        sent[rank] += values_K.nbytes
        after = (rank + 1) % ranks
        x_NNK[after, piece] = x_NNK[after, piece] + values_K if adding else values_K
