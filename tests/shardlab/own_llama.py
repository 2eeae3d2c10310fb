"""A Llama as an engineer would write it outside shardlab, from shardlab's linears alone.

It has no config, no base class of shardlab's and uneven stages. It keeps what shardlab asks of a
model: names of the whole model on every stage, the marks of its layers, `tied_weight` with `first`,
`context`, and `hidden_shape`. `python -m shardlab.parity` reads SUPPORTS, `batch` and `build`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from shardlab.context.documents import document_mask
from shardlab.context.parallel import ContextParallel
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from shardlab.layers.init import Init
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear

LAYERS, HIDDEN, HEADS, GROUPS, FFN, VOCAB, SEQUENCE, BATCH = 3, 16, 4, 2, 24, 21, 8, 8
INIT = Init(0, 0.2, torch.float64)
SUPPORTS = {
    "tensor": [1, 2], "context": [1, 2], "pipeline": [1, 2], "data": [1, 2],
    "microbatches": [1, 2], "schedule": ["1f1b", "gpipe"], "fsdp": ["", "FULL_SHARD"],
    "sequence_parallel": [False, True], "tied": [False, True], "packed": [False, True],
}  # fmt: skip
DOCUMENTS = [0, 0, 0, 1, 1, 2, 2, 2]  # of each sequence's tokens


def batch(step: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """(tokens, documents) and targets of a step, each [BATCH, SEQUENCE]."""
    generator = torch.Generator().manual_seed(step)
    text = torch.randint(VOCAB, (BATCH, SEQUENCE + 1), generator=generator)
    documents_BS = torch.tensor(DOCUMENTS).expand(BATCH, -1).contiguous()
    return (text[:, :-1], documents_BS), text[:, 1:]


class Norm(nn.Module):
    def __init__(self, partial: bool) -> None:
        super().__init__()
        self.weight = INIT.constant(1.0, HIDDEN)
        if partial:
            partial_gradients.mark(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, (HIDDEN,), self.weight, 1e-5)


def rotate(x_SBAD: Tensor, positions_S: Tensor) -> Tensor:
    """Rotate pairs (d, d + D/2) by position · 100^(−2d/D)."""
    half = x_SBAD.shape[-1] // 2
    rates = 100.0 ** (-torch.arange(half, dtype=x_SBAD.dtype) / half)
    angle = (positions_S.to(x_SBAD.dtype)[:, None] * rates)[:, None, None]
    a, b = x_SBAD.split(half, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    def __init__(self, name: str, grid: Grid, partial: bool, context: Any) -> None:
        super().__init__()
        self.head, self.groups, self.context = HIDDEN // HEADS, GROUPS // grid.tensor.size, context
        cut: dict[str, Any] = {"axis": grid.tensor, "bias": False, "init": INIT}
        cut["sequence_parallel"] = partial
        self.norm1, self.norm2 = Norm(partial), Norm(partial)
        keys = GROUPS * self.head
        self.q = ColumnParallelLinear(HIDDEN, HIDDEN, name=f"{name}.q", **cut)
        self.k = ColumnParallelLinear(HIDDEN, keys, name=f"{name}.k", **cut)
        self.v = ColumnParallelLinear(HIDDEN, keys, name=f"{name}.v", **cut)
        self.o = RowParallelLinear(HIDDEN, HIDDEN, name=f"{name}.o", **cut)
        self.gate = ColumnParallelLinear(HIDDEN, FFN, name=f"{name}.gate", **cut)
        self.up = ColumnParallelLinear(HIDDEN, FFN, name=f"{name}.up", **cut)
        self.down = RowParallelLinear(FFN, HIDDEN, name=f"{name}.down", **cut)

    def forward(self, x: Tensor, documents_BS: Tensor | None) -> Tensor:
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, self.head)) for f in (self.q, self.k, self.v))
        tokens = len(q)
        positions = self.context.positions(tokens) if self.context else torch.arange(tokens)
        q, k = rotate(q, positions), rotate(k, positions)
        q, k, v = (part.permute(1, 2, 0, 3) for part in (q, k, v))
        if self.context:
            mixed = self.context.attend(q, k, v, documents_BS)
        else:
            mask = None if documents_BS is None else document_mask(documents_BS)
            mixed = scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
        x = x + self.o(mixed.permute(2, 0, 1, 3).flatten(2))
        y = self.norm2(x)
        return x + self.down(silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Stage `stage` of `stages`; the last stages have the blocks that don't divide."""

    def __init__(
        self, grid: Grid, stage: int = 0, stages: int = 1, sequence_parallel: bool = False,
        tied: bool = False, packed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.packed = packed
        self.grid, self.partial = grid, sequence_parallel and grid.tensor.size > 1
        self.context = ContextParallel(grid.context) if grid.context.size > 1 else None
        self.first, self.last, self.tied = stage == 0, stage == stages - 1, tied
        numbers = range(LAYERS * stage // stages, LAYERS * (stage + 1) // stages)
        cut: dict[str, Any] = {"axis": grid.tensor, "init": INIT}
        cut["sequence_parallel"] = self.partial
        if self.first or (self.last and tied):
            self.embedding = VocabParallelEmbedding(VOCAB, HIDDEN, name="embedding", **cut)
        self.layers = nn.ModuleDict(
            {str(i): Block(f"layers.{i}", grid, self.partial, self.context) for i in numbers}
        )
        if self.last:
            self.norm = Norm(self.partial)
            weight = self.embedding.weight if tied else None
            self.head = VocabParallelHead(VOCAB, HIDDEN, weight=weight, **cut)

    @property
    def tied_weight(self) -> nn.Parameter | None:
        return self.embedding.weight if self.tied and self.first != self.last else None

    def hidden_shape(self, batch: int, sequence: int) -> list[tuple[int, ...]]:
        rows = sequence // self.grid.context.size // (self.grid.tensor.size if self.partial else 1)
        return [(rows, batch, HIDDEN), (batch, sequence)]

    hidden_dtype = (torch.float64, torch.int64)

    def forward(self, x: Tensor, documents_BS: Tensor) -> Any:
        """Return the logits, or (hidden states, documents)."""
        x = self.embedding(x.t()) if self.first else x
        for block in self.layers.values():
            x = block(x, documents_BS if self.packed else None)
        return self.head(self.norm(x)) if self.last else (x, documents_BS)

    def loss(self, logits_SBv: Tensor, targets_BS: Tensor) -> Tensor:
        return cross_entropy(logits_SBv, targets_BS.t(), axis=self.grid.tensor).mean()


def build(grid: Grid, stage: int = 0, stages: int = 1, **options: Any) -> Llama:
    return Llama(grid, stage, stages, **options)
