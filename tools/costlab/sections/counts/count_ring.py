"""An all-reduce message by message, round a ring and over a switch, and the bytes a rank sends.

The ranks are rows of one process: what counts is the algorithm, not who runs it. Where the ranks do
the adding, none sends less than round a ring (Patarasuk and Yuan, 2009). First each rank passes a
piece on and adds the one that comes (n - 1 times: a reduce-scatter), then it passes sums on (n - 1
times: an all-gather). A switch that adds on the way and hands the sum back takes each rank's
payload once: its ranks send less. (NVLink's has a rank send its part of the sum on, too.)

Dimensions: N ranks, K elements of a piece.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from costlab.record.result import Metric
from costlab.sections.timed import counted

PIECE = 256
# Of two, all formulas agree: 2(n-1)/n, n-1 and 1 are one number.
RANKS = (4, 8)


def rings() -> Iterator[Metric]:
    """Bytes that a rank sends for an all-reduce and for its first half, by its payload."""
    for ranks in RANKS:
        scattered, whole, payload = ring(ranks)
        yield counted(f"ring.n{ranks}.all_reduce.sent", whole / payload, "ratio")
        yield counted(f"ring.n{ranks}.reduce_scatter.sent", scattered / payload, "ratio")
        formula = 2 * (ranks - 1) / ranks
        yield counted(f"ring.n{ranks}.formula", formula, "ratio", how="derived")
        yield counted(f"ring.n{ranks}.halves", scattered / whole, "ratio")
        sent, payload = switch(ranks)
        yield counted(f"switch.n{ranks}.all_reduce.sent", sent / payload, "ratio")


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


def switch(ranks: int) -> tuple[int, int]:
    """Reduce over a switch that adds; return the bytes a rank sent, and the payload.

    Raises:
        ArithmeticError: the result isn't the sum.
    """
    x_NK = torch.arange(ranks * ranks * PIECE).view(ranks, -1)
    expected_K = x_NK.sum(0)
    sent = [0] * ranks
    switch_K = torch.zeros_like(expected_K)
    for rank, mine_K in enumerate(x_NK):
        switch_K += mine_K
        sent[rank] += mine_K.nbytes
    x_NK[:] = switch_K  # the switch's own message, to all at once
    if not all(torch.equal(x_K, expected_K) for x_K in x_NK):
        raise ArithmeticError(f"a switch with {ranks} ranks did not reduce")
    return sent[0], x_NK[0].nbytes


def _pass_on(x_NNK: Tensor, sent: list[int], step: int, *, adding: bool) -> None:
    """Let each rank send one piece to the next, all at once."""
    ranks = len(sent)
    messages = [(rank, (rank - step) % ranks) for rank in range(ranks)]
    pieces = [x_NNK[rank, piece].clone() for rank, piece in messages]
    for (rank, piece), values_K in zip(messages, pieces, strict=True):
        sent[rank] += values_K.nbytes
        after = (rank + 1) % ranks
        x_NNK[after, piece] = x_NNK[after, piece] + values_K if adding else values_K
