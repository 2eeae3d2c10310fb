"""Completes the gradients of a model in FSDP, after backward has averaged them over the replicas.

After backward each rank has the mean of its shards' gradients. The other steps are those of
`StepGradients` for replicas: weights of unequal shares, the sum of partial gradients over tensor
ranks, the sum of tied weights' gradients, and a norm that counts each parameter once. All of them
work on the shards. A tied weight is a flat parameter of its own (`fsdp/wrap.py`), so that both
stages shard it in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shardlab.data_parallel.gradient_norm import gradient_norm
from shardlab.fsdp import FSDP
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients
from shardlab.layers.sharding import is_first


class ShardedGradients:
    """The gradients of this rank's shards of a model.

    Args:
        parts: this rank's stage, or its pieces under an interleaved schedule, each in FSDP.
        grid: tensor × context × pipeline × data.
        reduction: see DataParallel.

    Raises:
        ValueError: the model isn't sharded or replicated over exactly the grid's replicas.
    """

    attribute = "grad"

    def __init__(self, parts: Sequence[FSDP], grid: Grid, reduction: str) -> None:
        self._parts, self._grid, self._reduction = parts, grid, reduction
        for part in parts:
            ranks = part.shard_axis.size * part.replicate_axis.size
            if ranks != grid.replicas.size:
                raise ValueError(
                    f"FSDP shards and repeats the model over {ranks} ranks, and the grid has "
                    f"{grid.replicas.size} replicas: wrap it over grid.replicas"
                )

    @property
    def shards(self) -> list[nn.Parameter]:
        """The flat shards that train."""
        flats = [flat for part in self._parts for flat in part.flats]
        return [flat.shard_f for flat in flats if flat.shard_f.requires_grad]

    @property
    def tied(self) -> list[nn.Parameter]:
        """The flat shards of tied weights, from the model's first stage on."""
        return [part.tied.shard_f for part in self._parts if part.tied is not None]

    def pieces(self) -> list[tuple[str, nn.Parameter]]:
        """Return each parameter's piece on this rank; its `.grad` is a view of the shard's."""
        return [piece for part in self._parts for piece in part.local_parameters()]

    def zero_grad(self) -> None:
        """Reset the last step's gradients."""
        for part in self._parts:
            part.zero_grad()

    def weigh(self, tokens: int | Tensor | None) -> None:
        """Scale the mean over replicas as `reduction` requires.

        Raises:
            ValueError: `tokens` without reduction="tokens", or the reverse.
            CollectiveError: ranks run different units of FSDP, or run them in a different order.
        """
        if (tokens is not None) != (self._reduction == "tokens"):
            raise ValueError(
                f'finish(tokens=…) goes with reduction="tokens", not {self._reduction!r}'
            )
        for part in self._parts:
            part.runtime.order.compare()
        gradients = [g for shard_f in self.shards if (g := shard_f.grad) is not None]
        if not gradients or self._reduction == "mean":
            return
        factor: Tensor | int = self._grid.data.size
        if tokens is not None:
            device = gradients[0].device
            count = torch.as_tensor([tokens], dtype=torch.float64, device=device)
            total = self._grid.replicas.all_reduce(count)[0]
            # Without tokens the gradients are 0.
            factor = self._grid.replicas.size / total.where(total != 0, 1)
        torch._foreach_mul_(gradients, factor)

    def sum_partial(self) -> None:
        """Sum partial gradients over the tensor ranks."""
        partial_gradients.reduce([piece for _, piece in self.pieces()], self._grid.tensor)

    def norm(self) -> Tensor:
        """Return the norm of the whole model's gradients, fp64 []."""
        axis = self._parts[0].shard_axis
        counted = [piece for part in self._parts for piece in _counted(part)]
        squares = gradient_norm(counted, axis, tensor=self._grid.tensor).square()
        return self._grid.axis("tensor", "pipeline").all_reduce(squares.reshape(1))[0].sqrt()

    @torch.no_grad()
    def add(self, name: str, delta: Tensor) -> None:
        """Add `delta` to this rank's piece of a parameter, if it has one."""
        for flat in (flat for part in self._parts for flat in part.flats):
            for piece in flat.layout.pieces(flat.axis.rank):
                number, start, stop, begin = piece
                if flat.layout.names[number] == name:
                    flat.shard_f[start:stop] += delta.flatten()[begin : begin + stop - start]


def _counted(part: FSDP) -> list[nn.Parameter]:
    """Return the pieces that this stage counts, without a tied weight that another stage counts."""
    copied = part.tied is not None and not is_first(part.module)
    names = set(part.tied.layout.names) if copied and part.tied else set()
    return [piece for name, piece in part.local_parameters() if name not in names]
