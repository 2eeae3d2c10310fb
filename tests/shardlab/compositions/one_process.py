"""Make one process do as many ranks do: with their loads, capacities and dropout masks."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.context import zigzag
from shardlab.gpt.model import GPT
from shardlab.layers.dropout import Dropout
from tests.shardlab.compositions.composition import Composition


class Loads:
    """The experts' load summed over all data ranks, in place of the axis that would sum it.

    While `known` is False each rank that is played adds its load; then the sums are given back.
    """

    def __init__(self, ranks: int) -> None:
        self.size, self.known = ranks, False
        self._sums: dict[tuple[int, int], Tensor] = {}

    def watch(self, model: GPT) -> None:
        """Make the routers of `model` take the load of all data ranks from here."""
        for layer, router in enumerate(model.routers):
            times = count()
            router.tokens = cast(
                Axis,
                SimpleNamespace(
                    size=self.size,
                    all_reduce=lambda load, layer=layer, times=times: self._sum(
                        load, (layer, next(times))
                    ),
                ),
            )

    def _sum(self, load: Tensor, place: tuple[int, int]) -> Tensor:
        if not self.known:
            self._sums[place] = self._sums.get(place, torch.zeros_like(load)) + load
        return self._sums[place]


def drop_by_parts(
    case: Composition, drop: Any, probs_TE: Tensor, chosen_TE: Tensor, config: Any
) -> Any:
    """Drop as each tensor and context rank does: each drops some of its own rows."""
    tokens = case.config().sequence
    order_S = zigzag.order(tokens, case.context) if case.context > 1 else torch.arange(tokens)
    order_T = torch.arange(len(probs_TE)).view(tokens, -1)[order_S].flatten()
    parts = case.tensor * case.context
    pairs = zip(probs_TE[order_T].chunk(parts), chosen_TE[order_T].chunk(parts), strict=True)
    dropped = [drop(p, c, config) for p, c in pairs]
    back_T = order_T.argsort()
    return tuple(torch.cat(both)[back_T] for both in zip(*dropped, strict=True))


class JoinedDropout(nn.Module):
    """A dropout that puts the masks of `ranks` tensor ranks side by side along `dim`."""

    def __init__(self, dropout: Dropout, ranks: int, dim: int) -> None:
        super().__init__()
        self.p, self._dim = dropout.p, dim
        seed, name, _ = dropout._key
        axes = [cast(Axis, SimpleNamespace(rank=rank)) for rank in range(ranks)]
        self._ranks = [Dropout(dropout.p, axis=a, sharded=True, name=name, seed=seed) for a in axes]

    def forward(self, x: Tensor) -> Tensor:
        parts = x.chunk(len(self._ranks), self._dim)
        dropped = [drop(part) for drop, part in zip(self._ranks, parts, strict=True)]
        return torch.cat(dropped, self._dim)

    def run_fused(self, kernel: Any, *tensors: Tensor) -> Tensor:
        """Run `kernel` on each rank's heads alone, since a fused kernel draws its mask itself."""
        parts = zip(*(x.chunk(len(self._ranks), self._dim) for x in tensors), strict=True)
        pairs = zip(self._ranks, parts, strict=True)
        return torch.cat([drop.run_fused(kernel, *part) for drop, part in pairs], self._dim)


def join_masks(model: GPT, case: Composition) -> None:
    """Replace the dropouts of `model` so that it drops what all tensor ranks together drop."""
    if case.tensor == 1 or case.dropout == 0:
        return
    for name, module in list(model.named_modules()):
        if isinstance(module, Dropout):
            heads = name.endswith("attention.dropout")
            if heads or case.sequence_parallel:
                holder, _, last = name.rpartition(".")
                joined = JoinedDropout(module, case.tensor, 1 if heads else 0)
                setattr(model.get_submodule(holder), last, joined)
