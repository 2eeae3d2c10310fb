"""What one process must be told to do as many ranks do: their loads, capacities and masks."""

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
from tests.shardlab.compositions.drawn import Composition


class Loads:
    """The load of all data ranks, as an axis says it: kept when they are first played in turn."""

    def __init__(self, ranks: int) -> None:
        self.size, self.known = ranks, False
        self._kept: dict[tuple[int, int], Tensor] = {}

    def watch(self, model: GPT) -> None:
        """Have a model's routers ask here for the load of all."""
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
            self._kept[place] = self._kept.get(place, torch.zeros_like(load)) + load
        return self._kept[place]


def drop_by_parts(
    case: Composition, drop: Any, probs_TE: Tensor, chosen_TE: Tensor, config: Any
) -> Any:
    """Drop as each tensor and context rank does: of its own rows."""
    tokens = case.config().sequence
    there_S = zigzag.order(tokens, case.context) if case.context > 1 else torch.arange(tokens)
    order_T = torch.arange(len(probs_TE)).view(tokens, -1)[there_S].flatten()
    parts = case.tensor * case.context
    pairs = zip(probs_TE[order_T].chunk(parts), chosen_TE[order_T].chunk(parts), strict=True)
    kept = [drop(p, c, config) for p, c in pairs]
    back_T = order_T.argsort()
    return tuple(torch.cat(both)[back_T] for both in zip(*kept, strict=True))


class _Joined(nn.Module):
    """The masks of all tensor ranks, side by side."""

    def __init__(self, one: Dropout, ranks: int, dim: int) -> None:
        super().__init__()
        self.p, self._dim = one.p, dim
        seed, name, _ = one._key
        axes = [cast(Axis, SimpleNamespace(rank=rank)) for rank in range(ranks)]
        self._ranks = [Dropout(one.p, axis=a, sharded=True, name=name, seed=seed) for a in axes]

    def forward(self, x: Tensor) -> Tensor:
        parts = x.chunk(len(self._ranks), self._dim)
        dropped = [drop(part) for drop, part in zip(self._ranks, parts, strict=True)]
        return torch.cat(dropped, self._dim)

    def run_fused(self, kernel: Any, *given: Tensor) -> Tensor:
        """Each rank's heads by themselves: a kernel draws its mask out of sight."""
        parts = zip(*(x.chunk(len(self._ranks), self._dim) for x in given), strict=True)
        pairs = zip(self._ranks, parts, strict=True)
        return torch.cat([drop.run_fused(kernel, *part) for drop, part in pairs], self._dim)


def join_masks(model: GPT, case: Composition) -> None:
    """Have a model drop what all tensor ranks drop."""
    if case.tensor == 1 or case.dropout == 0:
        return
    for name, one in list(model.named_modules()):
        if isinstance(one, Dropout):
            heads = name.endswith("attention.dropout")
            if heads or case.sequence_parallel:
                holder, _, last = name.rpartition(".")
                joined = _Joined(one, case.tensor, 1 if heads else 0)
                setattr(model.get_submodule(holder), last, joined)
