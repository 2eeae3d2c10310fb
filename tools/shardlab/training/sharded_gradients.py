"""What completes the gradients of a model in FSDP, once backward has averaged them over the ranks.

Backward leaves each rank the mean of its shards' gradients. What is left to do is what
`StepGradients` does for replicas: the weights of unequal shares, the sum over tensor ranks of what
is partial, the sum of tied ends, and a norm that counts each parameter once. All of it works on the
shards: a tied weight is a flat parameter of its own (`fsdp/wrap.py`), so that both stages cut it
alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shardlab.data_parallel.gradient_norm import gradient_norm
from shardlab.fsdp import FSDP
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients


class ShardedGradients:
    """The gradients of this rank's shards of a model.

    Args:
        parts: this rank's stage, or its pieces under an interleaved schedule, each in FSDP.
        grid: tensor × context × pipeline × data.
        reduction: as of DataParallel.

    Raises:
        ValueError: the model isn't sharded or repeated over just the grid's replicas.
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
        """Each parameter's piece on this rank, by name; its `.grad` is a view of the shard's."""
        return [named for part in self._parts for named in part.local_parameters()]

    def zero_grad(self) -> None:
        """Forget the last step's gradients."""
        for part in self._parts:
            part.zero_grad()

    def weigh(self, tokens: int | Tensor | None) -> None:
        """Turn the mean over replicas into what `reduction` asks for.

        Raises:
            ValueError: `tokens` without reduction="tokens", or the other way round.
            CollectiveError: ranks run other units of FSDP, or in another order.
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
            factor = self._grid.replicas.size / total.where(total != 0, 1)  # of no token: 0
        torch._foreach_mul_(gradients, factor)

    def sum_partial(self) -> None:
        """Sum over the tensor ranks what each has a part of."""
        partial_gradients.reduce([piece for _, piece in self.pieces()], self._grid.tensor)

    def norm(self) -> Tensor:
        """Return the norm of the whole model's gradients, fp64 without dimensions."""
        axis = self._parts[0].shard_axis
        counted = [piece for part in self._parts for piece in _counted(part)]
        squares = gradient_norm(counted, axis, tensor=self._grid.tensor).square()
        return self._grid.axis("tensor", "pipeline").all_reduce(squares.reshape(1))[0].sqrt()

    @torch.no_grad()
    def add(self, name: str, delta: Tensor) -> None:
        """Add to a parameter of which this rank holds a piece or nothing."""
        for flat in (flat for part in self._parts for flat in part.flats):
            for piece in flat.layout.pieces(flat.axis.rank):
                number, start, stop, begin = piece
                if flat.layout.names[number] == name:
                    flat.shard_f[start:stop] += delta.flatten()[begin : begin + stop - start]


def _counted(part: FSDP) -> list[nn.Parameter]:
    """Return the pieces that this stage counts: not those of a weight that another counts."""
    copied = part.tied is not None and not part.module.first
    names = set(part.tied.layout.names) if copied and part.tied else set()
    return [piece for name, piece in part.local_parameters() if name not in names]
