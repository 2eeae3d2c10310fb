"""What a rank sends for an all-reduce: round a ring, over a switch, and over gloo as it is.

Round a ring and over a switch, the ranks are rows of one process: what counts is the algorithm, not
who runs it. Where the ranks do the adding, none sends less than round a ring (Patarasuk and Yuan,
2009). First each rank passes a piece on and adds the one that comes (n - 1 times: a
reduce-scatter), then it passes sums on (n - 1 times: an all-gather). A switch that adds on the way
and hands the sum back takes each rank's payload once: its ranks send less. (NVLink's has a rank
send its part of the sum on, too.)

Dimensions: N ranks, K elements of a piece.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from costlab.record.result import Metric
from costlab.sections.metrics import counted
from shardlab.comm import World

PIECE = 256
# Of two, all formulas agree: 2(n-1)/n, n-1 and 1 are one number.
RANKS = (4, 8)
COUNTER = Path("/proc/self/io")
PAYLOAD = 8 << 20  # bytes, over gloo


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


def written(world: World) -> Iterator[Metric]:
    """Bytes a rank sends, by payload: gloo's all-reduce, its reduce-scatter, and ours.

    The kernel counts the bytes that each rank's process wrote. That count is the process' own, so
    whatever else speaks on the machine is not in it. Sockets are all that a rank writes to
    meanwhile. Where there is no such count (it is Linux's), nothing is yielded.
    """
    if not COUNTER.is_file():
        return
    n, axis = world.size, world.whole
    x = torch.ones(PAYLOAD // 4)
    piece = torch.empty(PAYLOAD // 4 // n)
    calls: dict[str, Callable[[], object]] = {
        "gloo.all_reduce": lambda: dist.all_reduce(x.clone(), group=axis.group),
        "gloo.reduce_scatter": lambda: dist.reduce_scatter_tensor(piece, x, group=axis.group),
        "axis.reduce_scatter": lambda: axis.reduce_scatter(x),
    }
    shares = {name: _sent(world, call) for name, call in calls.items()}
    for name, share in shares.items():
        yield counted(f"wire.{name}.n{n}.sent", share, "ratio", how="measured", payload=PAYLOAD)
    for name in ("gloo", "axis"):
        halves = shares[f"{name}.reduce_scatter"] / shares["gloo.all_reduce"]
        yield counted(f"wire.{name}.n{n}.halves", halves, "ratio", how="measured")


def _sent(world: World, call: Callable[[], object]) -> float:
    """Return the bytes that a rank writes during one call, the mean, by bytes of payload."""
    axis = world.whole
    axis.barrier()
    before = _wrote()
    call()
    axis.barrier()  # what others still fetched of it is written too
    after = torch.tensor([_wrote() - before], dtype=torch.float64)
    return float(axis.all_reduce(after, op="mean")) / PAYLOAD


def _wrote() -> int:
    fields = dict(line.split(": ") for line in COUNTER.read_text().splitlines())
    return int(fields["wchar"])
