"""Tensor parallelism counted: what a block of ours and its pieces ask for over the tensor axis.

Dimensions: S sequence, B batch, H hidden, V vocabulary; s, v: this rank's share.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from costlab.implementations import tutor
from costlab.record.result import Metric
from costlab.sections.metrics import counted
from shardlab.comm import World
from shardlab.gpt.block import Block
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.mlp import MLP
from shardlab.layers import partial_gradients
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear
from shardlab.layers.matmul import fuse
from shardlab.proofs.collective import Call
from shardlab.proofs.ledger import Ledger

S, B, H, V = 8, 2, 16, 32
_SMALL = GPTConfig(layers=1, hidden=H, heads=4, vocab=V, sequence=S)


def watched(call: Callable[[], Tensor]) -> Ledger:
    """Run `call` forward and backward under a ledger."""
    ledger = Ledger()
    with ledger:
        call().sum().backward()  # type: ignore[no-untyped-call]
    return ledger


def ones(*shape: int) -> Tensor:
    """An input that wants a gradient."""
    return torch.ones(shape, requires_grad=True)


def passes(name: str, ledger: Ledger) -> Iterator[Metric]:
    """Yield the all-reduces forward and backward."""
    for phase, label in (("", "forward"), ("backward", "backward")):
        yield counted(f"{name}.{label}.all_reduce", ledger.total("all_reduce", phase=phase).count)


def block(world: World) -> Iterator[Metric]:
    """A transformer block and a feed-forward pair, whole and sequence-parallel."""
    axis = world.whole
    plain = watched(lambda: Block(_SMALL, "block", axis=axis)(ones(S, B, H)))
    yield from passes("block", plain)
    yield from passes("ffn", watched(lambda: MLP(_SMALL, "mlp", axis=axis)(ones(S, B, H))))
    module = fuse(Block(_SMALL, "block", axis=axis, sequence_parallel=True))
    cut = watched(lambda: module(ones(S // world.size, B, H)))
    yield from passes("block-sp", cut)
    wire_bytes = Call("all_reduce", S * B * H * 4, world.size).wire
    for phase, label in (("", "forward"), ("backward", "backward")):
        worth = cut.total(phase=phase).wire / wire_bytes
        yield counted(f"block-sp.{label}.all-reduces-worth", worth)
    yield counted("sp.wire-ratio", cut.total().wire / plain.total().wire, "ratio")
    for label, of in (("tp", Block(_SMALL, "block", axis=axis)), ("sp", module)):
        with Ledger() as ledger:
            of(ones(S if label == "tp" else S // world.size, B, H)).sum().backward()
            with ledger.phase("step"):
                partial_gradients.reduce(of, axis)
        yield counted(f"{label}.gradients.all_reduce", ledger.total(phase="step").count)


def pieces(world: World) -> Iterator[Metric]:
    """Each linear by itself, what its weight gradient asks for, and the loss over a vocabulary."""
    axis, n = world.whole, world.size
    column = ColumnParallelLinear(H, 4 * H, axis=axis)
    row = RowParallelLinear(4 * H, H, axis=axis)
    yield from passes("column", watched(lambda: column(ones(S, B, H))))
    yield from passes("row", watched(lambda: row(ones(S, B, 4 * H // n))))
    cut = RowParallelLinear(4 * H, H, axis=axis, sequence_parallel=True)
    scattered = watched(lambda: cut(ones(S, B, 4 * H // n)))
    yield from passes("row-sp", scattered)
    pieces_sent = scattered.total("reduce_scatter", phase="").count
    yield counted("row-sp.forward.reduce_scatter", pieces_sent)
    mlp = MLP(_SMALL, "mlp", axis=axis)
    collectives = collectives_for_weights(mlp, lambda module: module(ones(S, B, H)))
    yield counted("weight-gradients.collectives", collectives)
    tokens = torch.zeros(S, B, dtype=torch.int64)
    loss = watched(lambda: cross_entropy(ones(S, B, V // n), tokens, axis=axis))
    numbers = loss.total("all_gather", phase="").payload / (n * S * B * 4)
    yield counted("cross-entropy.numbers-a-token", numbers)


def collectives_for_weights(module: nn.Module, call: Callable[[nn.Module], Tensor]) -> int:
    """Count the collectives that are there only because a module's weights want gradients."""
    trained = len(watched(lambda: call(module)).entries)
    frozen = len(watched(lambda: call(module.requires_grad_(False))).entries)
    return trained - frozen


def intensity(world: World) -> Iterator[Metric]:
    """Bytes that a rank asks for and operations of its linears, forward, by hidden size."""
    for hidden in (tutor.HIDDEN, 8 * tutor.HIDDEN):
        config = tutor.config(hidden)
        module = Block(config, "block", axis=world.whole)
        x_SBH = torch.zeros(tutor.SEQUENCE, tutor.BATCH, hidden)
        with torch.no_grad(), Ledger() as ledger, FlopCounterMode(display=False) as flops:
            module(x_SBH)
        kinds = flops.get_flop_counts()["Global"]  # torch 2.15 counts attention on a CPU too
        done = kinds[torch.ops.aten.mm] + kinds[torch.ops.aten.addmm]
        payload = ledger.total().payload
        yield counted(f"tutor.h{hidden}.bytes-per-flop", payload / done, "B/FLOP", flop=done)
        each = ledger.total("all_reduce").payload // ledger.total("all_reduce").count
        yield counted(f"tutor.h{hidden}.all-reduce", each, "B")
