"""From the gradients that backward leaves to those that the optimizer may use, in the right order.

1. Data parallel: buckets are all-reduced while backward runs; wait for the last. Ranks that share
   a sequence (context) are replicas as those that share a batch are.
2. Partial gradients: under sequence parallelism each tensor rank's norms and row biases have seen
   its own rows only; sum them over the tensor axis. Not before 1: a bucket that is under way must
   not be written.
3. Tied embeddings: the first stage has the gradient of the lookup, the last that of the head; sum
   them over the two, so that both copies take the same step.
4. The norm, of gradients that are complete at last, and clipping. Earlier, it would be the norm of
   parts, and differ from rank to rank.

An expert's gradient has 1 and 4 of its own. Its copies, not the data ranks, sum it: tokens came
from all ranks, and nobody else holds it. It is divided as all are, by the replicas that share the
batch. And over tensor × pipeline its norm would not be counted, or counted twice: that is summed
over the experts' own axes.

Megatron does 1 to 3 in `finalize_model_grads` (megatron/core/distributed) and 4 in its optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.data_parallel.gradient_norm import clip, gradient_norm
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients
from shardlab.layers.dropout import number_replicas
from shardlab.layers.sharding import copies_of


class StepGradients:
    """The gradients of this rank's part of a GPT; `finish` them after every step's backward.

    Args:
        chunks: this rank's stage; or its pieces, under an interleaved schedule.
        grid: tensor × context × pipeline × data.
        max_norm: clip to this norm; None to leave gradients as they are.
        microbatches: backward passes in a step; each loss divided by their number, by the caller.
        settings: further arguments for DataParallel (reduction, main_grads, bucket sizes …).

    Attributes:
        replicas: the DataParallel that reduces during backward.
        expert_replicas: the same for experts, where there are any.

    Raises:
        ValueError: one copy of the tied embedding is frozen and the other trains; or the model's
            experts lie on another grid, or it doesn't cut sequences as the grid does.
    """

    def __init__(
        self, chunks: GPT | Sequence[GPT], grid: Grid, *, max_norm: float | None = None,
        microbatches: int = 1, **settings: Any,
    ) -> None:  # fmt: skip
        """Hang the data-parallel hooks on the model; make the groups. Every rank calls this."""
        chunks = [chunks] if isinstance(chunks, GPT) else chunks
        named = [named for chunk in chunks for named in chunk.named_parameters()]
        self._parameters: list[nn.Parameter] = [parameter for _, parameter in named]
        self._tied = [c.tied_weight for c in chunks if c.tied_weight is not None]
        self._copies = [c.tied_weight for c in chunks if c.tied_weight is not None and not c.first]
        self._grid = grid
        self._max_norm = max_norm
        self._whole_model = grid.axis("tensor", "pipeline")
        self._refuse_half_frozen()
        for chunk in chunks:
            found = chunk.context.axis.size if chunk.context else 1
            if found != grid.context.size:
                raise ValueError(
                    f"the model cuts sequences over {found} ranks and the grid over "
                    f"{grid.context.size}: build it with context=ContextParallel(grid.context)"
                )
            number_replicas(chunk, grid.data.rank)
        batch = grid.replicas
        if settings.get("reduction") == "sum":  # of means, of which context ranks have parts
            settings["reduction"], batch = "mean", grid.context
        plain = [(name, p) for name, p in named if copies_of(p) is None]
        settings |= {"backwards": microbatches, "batch": batch}
        self.replicas = DataParallel(plain, grid.replicas, **settings)
        self._routers = [router for chunk in chunks for router in chunk.routers]
        self._dense = [parameter for _, parameter in plain]
        self._experts: list[nn.Parameter] = []
        if self._routers:
            scale = "tokens" if settings.get("reduction") == "tokens" else 1 / microbatches
            for router in self._routers:
                router.scale = scale
            experts = [(name, p) for name, p in named if copies_of(p) is not None]
            self._join_experts(experts, settings)

    def _join_experts(self, named: Sequence[tuple[str, nn.Parameter]], settings: Any) -> None:
        """Reduce the experts' gradients over their copies."""
        self._experts = [parameter for _, parameter in named]
        self._all_experts = self._grid.axis("expert_tensor", "expert", "pipeline")
        copies, found = self._grid.expert_data, copies_of(self._experts[0])
        if found is not copies:
            raise ValueError(
                f"the experts' copies are on {found}, and on this grid on {copies}: build the "
                "model with experts=ExpertAxes.of(grid), of the same grid"
            )
        self.expert_replicas = DataParallel(named, copies, **settings)

    def zero_grad(self) -> None:
        """Forget the last step's gradients; with main_grads, every step begins with this."""
        self.replicas.zero_grad()
        if self._experts:
            self.expert_replicas.zero_grad()

    def _refuse_half_frozen(self) -> None:
        """Refuse, on every rank of the model alike, copies of a weight that part ways."""
        device = self._parameters[0].device
        trains = [copy.requires_grad for copy in self._tied]
        mine = torch.tensor([[any(trains), not all(trains)]], dtype=torch.uint8, device=device)
        if bool(self._whole_model.all_gather(mine).any(0).all()):
            raise ValueError(
                "one copy of the tied embedding is frozen and the other trains: set requires_grad "
                "of GPT.tied_weight alike on the first and on the last stage"
            )

    def finish(self, *, tokens: int | Tensor | None = None) -> Tensor:
        """Complete the gradients; return their norm over the whole model, before clipping.

        Args:
            tokens: under reduction="tokens", those in this rank's share of the batch, on every
                stage; every stage's gradients are divided by their sum.

        Returns:
            fp64, no dimensions, the same on every rank.

        Raises:
            RuntimeError: a parameter got no gradient.
        """
        self.replicas.finish(tokens=tokens)
        if self._experts:
            self.expert_replicas.finish(tokens=tokens)
        where = self.replicas.attribute
        partial_gradients.reduce(self._parameters, self._grid.tensor, attribute=where)
        tied = [g for w in self._tied if (g := getattr(w, where, None)) is not None]  # none: frozen
        if tied and self._grid.embedding is not None:
            for copy in tied[1:]:  # a rank that holds both ends of the model
                tied[0].add_(copy)
            self._grid.embedding.all_reduce(tied[0], out=tied[0])
            torch._foreach_copy_(tied, tied[:1] * len(tied))
        norm = gradient_norm(
            self._dense, self._whole_model, tensor=self._grid.tensor, copies=self._copies,
            attribute=where,
        )  # fmt: skip
        if self._experts:
            tensor = self._grid.expert_tensor
            norm = norm.hypot(
                gradient_norm(self._experts, self._all_experts, tensor=tensor, attribute=where)
            )
        for router in self._routers:
            router.end_step()
        if self._max_norm is not None:
            clip(self._parameters, norm, self._max_norm, attribute=where)
        return norm
