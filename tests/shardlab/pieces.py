"""A small model that cuts into pieces, written without shardlab: what a pipeline is judged on.

Dimensions: B batch, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from shardlab.comm import World

LAYERS, HIDDEN, VOCAB, BATCH = 8, 6, 5, 24
RATE = 0.1


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


def data(step: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens and targets [B] of one step."""
    generator = torch.Generator("cpu").manual_seed(100 + step)
    drawn = torch.randint(VOCAB, (2, BATCH), generator=generator, device="cpu")
    tokens_B, targets_B = drawn.to(torch.get_default_device())
    return tokens_B, targets_B


def microbatches(count: int, step: int = 0) -> list[tuple[Tensor, Tensor]]:
    tokens_B, targets_B = data(step)
    return list(zip(tokens_B.chunk(count), targets_B.chunk(count), strict=True))


def loss(logits_BV: Tensor, targets_B: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits_BV, targets_B)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def chunks_of(world: World, chunks: int = 1) -> nn.ModuleList:
    """This rank's pieces: chunk c of stage s is piece c·p + s."""
    p = world.size
    return nn.ModuleList(Piece(c * p + world.rank, p * chunks) for c in range(chunks))


def named(chunks: nn.ModuleList, values: str) -> dict[str, Tensor]:
    """Gradients or weights by the whole model's names."""
    read = {"gradients": gradients, "weights": weights}[values]
    return {name: x for chunk in chunks for name, x in read(chunk).items()}


def whole_run(steps: int) -> Mapping[str, Mapping[str, Tensor]]:
    """The unsharded model on the whole batch: SGD, whose steps show a wrongly scaled gradient."""
    model = Piece()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    first: dict[str, Tensor] = {}
    for step in range(steps):
        optimizer.zero_grad()
        tokens_B, targets_B = data(step)
        value = loss(model(tokens_B), targets_B)
        value.backward()
        first = first or gradients(model)
        optimizer.step()
        losses.append(value.detach())
    return {"losses": {"": torch.stack(losses)}, "gradients": first, "weights": weights(model)}
