"""Completes the gradients after backward, in the right order, before the optimizer uses them.

1. Data parallelism: buckets are all-reduced while backward runs; wait for the last. Context ranks,
   which share a sequence, are replicas like the ranks that share a batch.
2. Partial gradients: under sequence parallelism each tensor rank's norms and row biases have seen
   only its rows; sum their gradients over the tensor axis. This must follow 1, because a bucket
   that is being reduced must not be written.
3. Tied embeddings: the first stage has the gradient of the lookup, the last that of the head; sum
   the two, so that both copies take the same optimizer step.
4. The norm of the complete gradients, and clipping. Computed earlier, it would be a norm of parts
   and differ between ranks.

Experts' gradients have their own steps 1 and 4. They are summed over the ranks with copies of the
expert instead of the data ranks, since tokens come from all ranks. They are divided by the number
of replicas that share the batch, like all gradients. Their norm is summed over the experts' axes;
over tensor × pipeline it would be missed or counted twice.

In FSDP, backward does 1, and the other steps are done on the shards (`sharded_gradients.py`).

Megatron does 1 to 3 in `finalize_model_grads` (megatron/core/distributed) and 4 in its optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.data_parallel.gradient_norm import clip, gradient_norm
from shardlab.fsdp import FSDP
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients
from shardlab.layers.dropout import number_replicas
from shardlab.layers.sharding import copies_of, is_first
from shardlab.training.counted_tokens import CountedTokens
from shardlab.training.sharded_gradients import ShardedGradients


class StepGradients:
    """The gradients of this rank's part of a model; `finish` them after every step's backward.

        step = StepGradients(model, grid, microbatches=4, max_norm=1.0)
        …                                 # forward and backward of every micro-batch
        norm = step.finish()              # on every rank
        if norm.isfinite():               # the same answer on every rank
            optimizer.step()
        step.zero_grad()

    A model is any module. Its parameters have the marks of their layers (how each is sharded,
    whether its gradient is partial). It may also have: `tied_weight`, a parameter of which another
    stage has a copy, with `first`, whether this stage counts it; modules with `end_step`, such as
    routers; and `context`, how sequences are cut.

    Args:
        parts: this rank's stage, or its pieces under an interleaved schedule. Either all are whole
            on every replica, or all are in FSDP over `grid.replicas`.
        grid: tensor × context × pipeline × data.
        max_norm: clip gradients to this norm; None for no clipping.
        microbatches: backward passes in a step; the caller must divide each loss by their number.
        reduction: "mean", "sum" or "tokens", see DataParallel.
        settings: further arguments for DataParallel (main_grads, bucket_bytes …); not under FSDP.

    Attributes:
        replicas: the DataParallel that reduces during backward; None under FSDP.
        expert_replicas: the same for experts, where there are any.
        checks_marks: refuse the gradients of unmarked parameters that differ over tensor ranks.

    Raises:
        ValueError: one copy of the tied embedding is frozen and the other trains; the model's
            experts or sequences are cut for another grid; or only some parts are in FSDP.
    """

    def __init__(
        self, parts: nn.Module | Sequence[nn.Module], grid: Grid, *, max_norm: float | None = None,
        microbatches: int = 1, reduction: str = "mean", **settings: Any,
    ) -> None:  # fmt: skip
        """Register the data-parallel hooks and make the groups; every rank must call this."""
        parts = [parts] if isinstance(parts, nn.Module) else list(parts)
        sharded = [part for part in parts if isinstance(part, FSDP)]
        if sharded and (settings or len(sharded) < len(parts)):
            raise ValueError(
                "wrap every part of the model in FSDP, or none; under FSDP "
                f"{', '.join(settings) or 'settings of replicas'} can't be given"
            )
        models: list[Any] = [part.module if isinstance(part, FSDP) else part for part in parts]
        self._grid = grid
        self._device = next(parameter.device for part in parts for parameter in part.parameters())
        self._max_norm = max_norm
        self._checked = False
        self.checks_marks = True
        self._whole_model = grid.axis("tensor", "pipeline")
        for model in models:
            _refuse_other_context(model, grid)
        self._routers: list[Any] = [
            module for model in models for module in model.modules() if hasattr(module, "end_step")
        ]
        for router in self._routers:
            router.scale = "tokens" if reduction == "tokens" else 1 / microbatches
        self._counted: CountedTokens | None = None
        if reduction == "tokens":
            self._counted = CountedTokens(models, grid, microbatches, self._device)
        self.replicas: DataParallel | None = None
        self._sharded = ShardedGradients(sharded, grid, reduction) if sharded else None
        self._experts: list[nn.Parameter] = []
        if self._sharded:
            self._tied = self._sharded.tied
        else:
            self._tied = [w for m in models if (w := getattr(m, "tied_weight", None)) is not None]
            self._copies = [m.tied_weight for m in models if _holds_copy(m)]
        self._refuse_half_frozen()
        if not self._sharded:
            self._join_replicas(models, microbatches, reduction, settings)

    def _join_replicas(
        self, models: Sequence[Any], microbatches: int, reduction: str, settings: dict[str, Any]
    ) -> None:
        """Reduce gradients over the replicas during backward, experts' over their copies."""
        for model in models:
            number_replicas(model, self._grid.data.rank)
        named_parameters = [*chain.from_iterable(model.named_parameters() for model in models)]
        batch = self._grid.replicas
        if reduction == "sum":  # of means, of which context ranks have parts
            reduction, batch = "mean", self._grid.context
        settings |= {"reduction": reduction, "backwards": microbatches, "batch": batch}
        self._named = [(name, p) for name, p in named_parameters if copies_of(p) is None]
        self.replicas = DataParallel(self._named, self._grid.replicas, **settings)
        self._parameters: list[nn.Parameter] = [parameter for _, parameter in named_parameters]
        self._dense = [parameter for _, parameter in self._named]
        if experts := [(name, p) for name, p in named_parameters if copies_of(p) is not None]:
            self._join_experts(experts, settings)

    def _join_experts(
        self, named_parameters: Sequence[tuple[str, nn.Parameter]], settings: Any
    ) -> None:
        """Reduce the experts' gradients over their copies."""
        self._experts = [parameter for _, parameter in named_parameters]
        self._all_experts = self._grid.axis("expert_tensor", "expert", "pipeline")
        copies, model_copies = self._grid.expert_data, copies_of(self._experts[0])
        if model_copies is not copies:
            raise ValueError(
                f"the experts' copies are on {model_copies}, and on this grid on {copies}: build "
                "the model with experts=ExpertAxes.of(grid), of the same grid"
            )
        self.expert_replicas = DataParallel(named_parameters, copies, **settings)

    def zero_grad(self) -> None:
        """Reset the gradients and the loads of the last step, or of one that is abandoned.

        With main_grads, every step must begin with this.
        """
        if self._sharded:
            self._sharded.zero_grad()
        elif self.replicas:
            self.replicas.zero_grad()
        if self._experts:
            self.expert_replicas.zero_grad()
        if self._counted:
            self._counted.forget()
        for router in self._routers:
            router.forget()

    def begin(self, *, tokens: Sequence[int] | Tensor) -> None:
        """Under reduction="tokens", set the counted tokens before the first forward of a step.

        Routers weight their auxiliary losses by them, and `finish` divides by their sum. Only a
        model with routers needs it, and only if some targets don't count.

        Args:
            tokens: the counted tokens of each of this rank's micro-batches, on every stage.

        Raises:
            ValueError: the reduction isn't "tokens", or there isn't one number for each
                micro-batch.
        """
        if self._counted is None:
            raise ValueError('begin(tokens=…) goes with reduction="tokens"')
        self._counted.begin(tokens)

    def _refuse_half_frozen(self) -> None:
        """Refuse, on every rank of the model, a tied weight of which only one copy trains."""
        trains = [copy.requires_grad for copy in self._tied]
        device = self._tied[0].device if self._tied else self._device
        local = torch.tensor([[any(trains), not all(trains)]], dtype=torch.uint8, device=device)
        if bool(self._whole_model.all_gather(local).any(0).all()):
            raise ValueError(
                "one copy of the tied embedding is frozen and the other trains: set requires_grad "
                "of GPT.tied_weight alike on the first and on the last stage"
            )

    def finish(self, *, tokens: int | Tensor | None = None) -> Tensor:
        """Complete the gradients; return their norm over the whole model, before clipping.

        Args:
            tokens: under reduction="tokens", the counted tokens in this rank's share of the batch,
                on every stage; gradients are divided by all replicas' sum. Omit it after `begin`.

        Returns:
            the norm, fp64 [], the same on every rank. It isn't finite if a gradient isn't; take no
            optimizer step then.

        Raises:
            RuntimeError: a parameter got no gradient.
            ValueError: the gradients of an unmarked parameter differ over the tensor ranks (checked
                in the first step, and in every step if the world checks); or routers weighted their
                losses by another number of tokens than `tokens`.
        """
        if self._counted:
            tokens = self._counted.total(tokens)
        norm = self._finish_shards(tokens) if self._sharded else self._finish_replicas(tokens)
        for router in self._routers:
            delta = router.end_step()
            if delta is not None and self._sharded and not isinstance(router.expert_bias, Tensor):
                self._sharded.add(router.expert_bias.name, delta)
        if self._counted:
            self._counted.forget()
        return norm

    def _finish_shards(self, tokens: int | Tensor | None) -> Tensor:
        assert self._sharded
        self._sharded.weigh(tokens)
        self._sharded.sum_partial()
        self._sum_tied("grad")
        self._refuse_unmarked(self._sharded.pieces(), "grad")
        norm = self._sharded.norm()
        if self._max_norm is not None:
            clip(self._sharded.shards, norm, self._max_norm)
        return norm

    def _finish_replicas(self, tokens: int | Tensor | None) -> Tensor:
        assert self.replicas
        self.replicas.finish(tokens=tokens)
        if self._experts:
            self.expert_replicas.finish(tokens=tokens)
        attribute = self.replicas.attribute
        partial_gradients.reduce(self._parameters, self._grid.tensor, attribute=attribute)
        self._sum_tied(attribute)
        self._refuse_unmarked(self._named, attribute)
        norm = gradient_norm(
            self._dense, self._whole_model, tensor=self._grid.tensor, copies=self._copies,
            attribute=attribute,
        )  # fmt: skip
        if self._experts:
            tensor = self._grid.expert_tensor
            norm = norm.hypot(
                gradient_norm(self._experts, self._all_experts, tensor=tensor, attribute=attribute)
            )
        if self._max_norm is not None:
            clip(self._parameters, norm, self._max_norm, attribute=attribute)
        return norm

    def _sum_tied(self, attribute: str) -> None:
        """Sum a tied weight's gradients over the stages that have it."""
        # A frozen weight has no gradient.
        tied = [g for w in self._tied if (g := getattr(w, attribute, None)) is not None]
        if tied and self._grid.embedding is not None:
            for copy in tied[1:]:  # a rank that holds both ends of the model
                tied[0].add_(copy)
            self._grid.embedding.all_reduce(tied[0], out=tied[0])
            torch._foreach_copy_(tied, tied[:1] * len(tied))

    def _refuse_unmarked(
        self, named_parameters: Sequence[tuple[str, nn.Parameter]], attribute: str
    ) -> None:
        tensor = self._grid.tensor
        if self.checks_marks and tensor.size > 1 and (tensor.checks or not self._checked):
            partial_gradients.refuse_unmarked(named_parameters, tensor, attribute=attribute)
        self._checked = True


def _holds_copy(model: Any) -> bool:
    """Return whether a model has a tied weight that another stage counts."""
    return getattr(model, "tied_weight", None) is not None and not is_first(model)


def _refuse_other_context(model: Any, grid: Grid) -> None:
    context = getattr(model, "context", None)
    ranks = context.axis.size if context else 1
    if ranks != grid.context.size:
        raise ValueError(
            f"the model cuts sequences over {ranks} ranks and the grid over "
            f"{grid.context.size}: build it with context=ContextParallel(grid.context)"
        )
