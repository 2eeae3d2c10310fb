"""A small model that cuts into pieces, written without shardlab: what a pipeline is judged on.

Dimensions: B batch, H hidden, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shardlab.comm import World

LAYERS, HIDDEN, VOCAB, BATCH = 8, 6, 5, 24


def layer(index: int) -> nn.Linear:
    """A linear on torch's default device, drawn on the CPU: the same weights on any device."""
    torch.manual_seed(index)
    linear = nn.Linear(HIDDEN, HIDDEN, dtype=torch.float64, device="cpu")
    return linear.to(torch.get_default_device())


class Piece(nn.Module):
    """Piece `index` of `pieces`: its share of layers; the first has an embedding, the last a head.

    Names are those of the whole model: `layers.5.weight`. `embedding` is tied and stands on both.
    """

    def __init__(self, index: int = 0, pieces: int = 1) -> None:
        super().__init__()
        self.first, self.last = index == 0, index == pieces - 1
        share = LAYERS // pieces
        names = range(index * share, (index + 1) * share)
        self.layers = nn.ModuleDict({str(i): layer(i) for i in names})
        if self.first or self.last:
            torch.manual_seed(LAYERS)
            drawn = torch.randn(VOCAB, HIDDEN, dtype=torch.float64, device="cpu") / 4
            self.embedding = nn.Parameter(drawn.to(torch.get_default_device()))

    def forward(self, x: Tensor) -> Tensor:
        x_BH = self.embedding[x] if self.first else x
        for linear in self.layers.values():
            x_BH = x_BH + torch.tanh(linear(x_BH))
        return x_BH @ self.embedding.t() if self.last else x_BH


def data() -> tuple[Tensor, Tensor]:
    """Tokens and targets [B]."""
    generator = torch.Generator("cpu").manual_seed(100)
    drawn = torch.randint(VOCAB, (2, BATCH), generator=generator, device="cpu")
    tokens_B, targets_B = drawn.to(torch.get_default_device())
    return tokens_B, targets_B


def microbatches(count: int) -> list[tuple[Tensor, Tensor]]:
    tokens_B, targets_B = data()
    return list(zip(tokens_B.chunk(count), targets_B.chunk(count), strict=True))


def loss(logits_BV: Tensor, targets_B: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits_BV, targets_B)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def chunks_of(world: World, chunks: int = 1) -> nn.ModuleList:
    """This rank's pieces: chunk c of stage s is piece c·p + s."""
    p = world.size
    return nn.ModuleList(Piece(c * p + world.rank, p * chunks) for c in range(chunks))


def gradients_of(chunks: nn.ModuleList) -> dict[str, Tensor]:
    """By the whole model's names."""
    return {name: x for chunk in chunks for name, x in gradients(chunk).items()}


def sum_tied(world: World, chunks: nn.ModuleList) -> None:
    """Sum the embedding's gradient over the first and the last stage, as grid.embedding does."""
    if world.size == 1 or world.rank not in (0, world.size - 1):
        return
    ends = world.axis("embedding", [0, world.size - 1])
    tied = next(chunk.embedding for chunk in chunks if chunk.first or chunk.last)
    ends.all_reduce(tied.grad, out=tied.grad)


def whole_step() -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients of the unsharded model on the whole batch."""
    model, (tokens_B, targets_B) = Piece(), data()
    value = loss(model(tokens_B), targets_B)
    value.backward()
    return value.detach(), gradients(model)
