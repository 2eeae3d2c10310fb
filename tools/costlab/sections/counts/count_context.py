"""Attention over sequences that are cut: bytes, what is kept, who computes what, what hides.

Dimensions: B batch, A heads, G key-value groups, D head.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from costlab.record.result import Metric
from costlab.sections.metrics import counted
from shardlab.comm import World
from shardlab.context.parallel import ContextParallel
from shardlab.proofs.causal_work import count_cells
from shardlab.proofs.formulas.context import max_blocks_held
from shardlab.proofs.ledger import Ledger

SHARE, B, A, D = 4, 1, 32, 2  # tokens of a rank: however many there are
KINDS = ("ring", "all-gather", "ulysses")
# An H100's data sheet, dense bf16; NVLink and a 400-gigabit network, each way.
OPERATIONS, LINKS = 989e12, {"nvlink": 450e9, "network": 50e9}
BF16 = 2  # bytes


def in_a_step(world: World) -> Iterator[Metric]:
    """What each kind sends in a step, with as many keys as queries and with an eighth.

    And what it keeps for backward.
    """
    for kind in KINDS:
        for groups in (A, A // 8):
            saved: dict[int, int] = {}

            def keep(x: Tensor, saved: dict[int, int] = saved) -> Tensor:
                saved[x.data_ptr()] = x.nbytes
                return x

            with Ledger() as ledger, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
                _attention(world, kind, groups).sum().backward()  # type: ignore[no-untyped-call]
            name = f"context.{kind}.n{world.size}.g{groups}"
            yield counted(f"{name}.sent", ledger.total().wire, "B")
            yield counted(f"{name}.kept", sum(saved.values()), "B")


def held_activations() -> Iterator[Metric]:
    """Blocks that a rank of eight holds while it computes, as the tests of shardlab see them."""
    for kind in KINDS[:2]:
        blocks = max_blocks_held(kind, ranks=8)
        yield counted(f"context.{kind}.n8.blocks.formula", blocks, how="derived")


def balance() -> Iterator[Metric]:
    """The slowest rank's share of a causal mask, of the mean, where ranks hold runs of tokens."""
    for ranks in (2, 8):
        cells = count_cells(ranks, balanced=False)
        yield counted(f"context.runs.n{ranks}.slowest", max(cells) * ranks / sum(cells), "ratio")


def hidden_from(world: World) -> Iterator[Metric]:
    """How many tokens a rank needs, by a data sheet, for a ring's step to outlast its message.

    Operations grow with the square of the share, bytes with the share: so from one share that is
    counted follow all.
    """
    for groups in (A, A // 16):
        with Ledger() as ledger:
            _attention(world, "ring", groups)
        step = ledger.select("send")[0].payload / 4 * BF16
        pairs = SHARE * SHARE / 2  # zig-zag: half a square in every step
        operations = 4 * pairs * A * D * B  # scores and values, a product and a sum each
        for link, rate in LINKS.items():
            tokens = SHARE * (step / rate) / (operations / OPERATIONS)
            name = f"context.hidden-from.{link}.g{groups}.tokens"
            yield counted(name, tokens, "tokens", how="modelled")


def _attention(world: World, kind: str, groups: int) -> Tensor:
    q, k, v = (torch.zeros(B, heads, SHARE, D, requires_grad=True) for heads in (A, groups, groups))
    return ContextParallel(world.whole, kind).attend(q, k, v)
