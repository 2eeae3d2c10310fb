"""A small transformer in plain torch, its data, and what an unsharded model makes of them.

Dimension key: B batch, S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from shardlab.fsdp import FSDP
from shardlab.fsdp.flat_parameter import FlatParameter

HIDDEN, HEADS, LAYERS, VOCABULARY, SEQUENCE, BATCH = 8, 2, 3, 13, 4, 2


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(hidden)
        # A key bias has no gradient but rounding errors, which AdamW would scale up to full steps.
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden)
        self.norm_2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x_BSH: Tensor) -> Tensor:
        batch, sequence, hidden = x_BSH.shape
        parts = self.qkv(self.norm_1(x_BSH)).view(batch, sequence, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BSH = x_BSH + self.out(mixed.transpose(1, 2).reshape(batch, sequence, hidden))
        return x_BSH + self.down(F.gelu(self.up(self.norm_2(x_BSH))))


class Transformer(nn.Module):
    """Embedding, blocks, norm, head; returns the loss."""

    def __init__(
        self,
        *,
        hidden: int = HIDDEN,
        layers: int = LAYERS,
        vocabulary: int = VOCABULARY,
        sequence: int = SEQUENCE,
        heads: int = HEADS,
        tied: bool = True,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        generator = torch.Generator("cpu").manual_seed(7)
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.zeros(sequence, hidden))
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.register_buffer("scale", torch.ones(()))
        if tied:
            self.head.weight = self.embedding.weight
        self.to(dtype)
        with torch.no_grad():
            for parameter in self.parameters():
                drawn = torch.randn(
                    parameter.shape, generator=generator, dtype=torch.float64, device="cpu"
                )
                parameter.copy_(drawn * 0.3)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x_BSH = self.embedding(tokens) + self.positions
        for block in self.blocks:
            x_BSH = block(x_BSH)
        logits_BSV = self.head(self.norm(x_BSH)) * self.scale
        return F.cross_entropy(logits_BSV.flatten(0, 1), targets.flatten())


def batch(rank: int, step: int, micro: int = 0, **sizes: int) -> tuple[Tensor, Tensor]:
    """The tokens and targets, [B, S] each, of one data rank, step and micro-batch."""
    generator = torch.Generator("cpu").manual_seed(1 + rank + 100 * step + 10_000 * micro)
    shape = (2, sizes.get("batch", BATCH), sizes.get("sequence", SEQUENCE))
    vocabulary = sizes.get("vocabulary", VOCABULARY)
    drawn = torch.randint(vocabulary, shape, generator=generator, device="cpu")
    tokens, targets = drawn.to(torch.get_default_device())
    return tokens, targets


def optimizer_of(kind: str, parameters: Any) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


def train_whole(
    model: nn.Module, ranks: int, kind: str, steps: int = 4, micro: int = 1
) -> tuple[list[list[float]], list[dict[str, Tensor]]]:
    """Train unsharded on all ranks' data.

    Returns each step's losses by rank (of its last micro-batch), and each step's gradients by name.
    """
    optimizer = optimizer_of(kind, [p for p in model.parameters() if p.requires_grad])
    losses, gradients = [], []
    for step in range(steps):
        row = []
        for rank in range(ranks):
            for number in range(micro):
                loss = model(*batch(rank, step, number))
                (loss / ranks / micro).backward()
            row.append(loss.item())
        losses.append(row)
        gradients.append(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        )
        optimizer.step()
        optimizer.zero_grad()
    return losses, gradients


def furthest(ours: dict[str, Tensor], reference: dict[str, Tensor]) -> float:
    """The largest relative error, by tensor, of `ours` over the names in `reference`."""
    return max(
        ((ours[n] - reference[n]).norm() / reference[n].norm().clamp_min(1e-30)).item()
        for n in reference
    )


def unsharded_bytes(flats: Iterable[FlatParameter]) -> int:
    """Memory that full parameters hold at this moment, beside the shards."""
    return sum(f.full_F.untyped_storage().nbytes() for f in flats if not f.is_whole)


def gathered(flat: FlatParameter, shard_f: Tensor) -> dict[str, Tensor]:
    """Whole tensors by parameter, from what every rank has in the shard's shape."""
    whole_F = flat.axis.all_gather(shard_f.detach()).clone()
    return {name: flat.view(whole_F, number) for number, name in enumerate(flat.layout.names)}


def sliced(flat: FlatParameter, whole: Sequence[Tensor]) -> Tensor:
    """This rank's piece of parameter-shaped tensors, in the shard's shape."""
    mine_f = torch.zeros_like(flat.shard_f, requires_grad=False)
    for number, start, stop, offset in flat.layout.pieces(flat.axis.rank):
        mine_f[start:stop] = whole[number].detach().reshape(-1)[offset : offset + stop - start]
    return mine_f


def gathered_gradients(model: FSDP) -> dict[str, Tensor]:
    whole: dict[str, Tensor] = {}
    for flat in model.flats:
        if flat.shard_f.grad is not None:
            whole |= gathered(flat, flat.shard_f.grad)
    return whole


def gathered_parameters(model: FSDP) -> dict[str, Tensor]:
    return {name: x for flat in model.flats for name, x in gathered(flat, flat.shard_f).items()}


def train_sharded(
    model: FSDP,
    rank: int,
    kind: str,
    steps: int = 4,
    micro: int = 1,
    no_sync: bool = False,
    look: tuple[int, ...] = (0, 3),
) -> tuple[list[float], dict[int, dict[str, Tensor]]]:
    """Train on this rank's data; return its losses, and the gradients of the steps in `look`."""
    optimizer = optimizer_of(kind, model.parameters())
    losses, gradients = [], {}
    for step in range(steps):
        for number in range(micro):
            last = number == micro - 1
            with model.no_sync() if no_sync and not last else nullcontext():
                loss = model(*batch(rank, step, number))
                (loss / micro).backward()
        losses.append(loss.item())
        if step in look:
            gradients[step] = gathered_gradients(model)
        optimizer.step()
        optimizer.zero_grad()
    return losses, gradients
