"""Data parallelism meets masked tokens and micro-batches; gloo strided tensors; norms a mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from room import difference, random_like, room
from torch import Tensor, nn

from costlab.implementations.megatron import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    ModelType,
    config,
    finalize_model_grads,
    megatron,
    schedules,
)
from shardlab.comm import World
from shardlab.data_parallel.data_parallel import DataParallel

with patch.object(torch, "compile", lambda function: function):
    from megatron.core.distributed.data_parallel_base import _BaseDataParallel

HIDDEN, TOKENS = 4, 8


@room("unequal-tokens", ranks=2)
def unequal_tokens(world: World) -> dict[str, float]:
    """A gradient's relative error where one rank's batch has 1 token that counts, the other's 7."""
    batch, count = random_like(2, TOKENS, HIDDEN, seed=1), torch.tensor([1, 7])
    mask, errors = (torch.arange(TOKENS) < count[:, None]).double(), {}
    weight = random_like(1, HIDDEN, seed=2)
    whole = nn.Parameter(weight.clone())
    ((batch @ whole.T)[..., 0].square() * mask).sum().div(mask.sum()).backward()
    with megatron():
        for per_token in (False, True):
            layer = nn.Linear(HIDDEN, 1, bias=False, dtype=torch.float64)
            layer.weight.data.copy_(weight)
            settings = config(hidden=HIDDEN, calculate_per_token_loss=per_token)
            replicas = DistributedDataParallel(settings, DistributedDataParallelConfig(), layer)

            def loss(y: Tensor) -> tuple[Tensor, Tensor, dict[str, float]]:
                mask_here = mask[world.rank]
                return (y[..., 0].square() * mask_here).sum(), mask_here.sum().int(), {}

            value, tokens = schedules.forward_step_calc_loss(
                layer, replicas(batch[world.rank]), loss, settings, None, False, 1, []
            )
            value.backward()
            finalize_model_grads([replicas], tokens if per_token else None)
            name = "per token" if per_token else "by default"
            errors[name] = difference(layer.weight.main_grad, whole.grad)
    return errors


@room("strided-gloo", ranks=2)
def strided_gloo(world: World) -> dict[str, float]:
    """How many numbers are wrong in a tensor that isn't contiguous, after a collective into it."""
    block = torch.arange(4.0).view(2, 2) + 10 * world.rank
    received = torch.zeros(2, 2).t()
    dist.all_to_all_single(received, block)
    right = torch.tensor([[0.0, 1], [10, 11]]) + 2 * world.rank
    wrong = {"all-to-all": received != right}
    column = block.clone()[:, 0]
    dist.broadcast(column, src=0)
    wrong["broadcast"] = column != torch.tensor([0.0, 2])
    column = block.clone()[:, 0]
    dist.reduce(column, dst=0)
    if world.rank == 0:
        wrong["reduce"] = column != torch.tensor([10.0, 14])
    column = block.clone()[:, 0]
    dist.all_reduce(column)
    wrong["all-reduce"] = column != torch.tensor([10.0, 14])
    return {name: float(where.sum()) for name, where in wrong.items()}


@room("averaged-norm", ranks=2)
def averaged_norm(world: World) -> dict[str, float]:
    """A minimal model: each rank takes the norm of its own experts, and the norms are averaged."""
    gradients = torch.tensor([[2.0, 4.0], [6.0, 8.0]], dtype=torch.float64)  # expert a rank
    averaged = gradients[world.rank].norm() / world.size
    dist.all_reduce(averaged)
    right = float(gradients.norm())
    return {"averaged": averaged.item(), "right": right, "ratio": averaged.item() / right}


class Deferred(_BaseDataParallel):
    """A minimal model: sums gradients, and lets the last backward average them and begin anew."""

    model_type = ModelType.encoder_or_decoder

    def __init__(self, settings: Any, module: nn.Module) -> None:
        super().__init__(settings, module)
        self.last, self.sum, self.reduced = True, torch.zeros(()), torch.zeros(())
        module.weight.register_post_accumulate_grad_hook(self._reduce)

    def set_input_tensor(self, *_: Any) -> None:
        """Megatron's schedules call it; nothing comes from another stage."""

    def _reduce(self, weight: nn.Parameter) -> None:
        self.sum, weight.grad = self.sum + weight.grad, None
        if self.last:
            dist.all_reduce(self.sum)
            self.reduced, self.sum = self.sum / dist.get_world_size(), torch.zeros(())


class DeferredWithNoSync(Deferred):
    """The same, with a `no_sync` of its own."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Defer the reduction."""
        self.last = False
        yield
        self.last = True


@room("last-micro-batch", ranks=2)
def last_micro_batch(world: World) -> dict[str, float]:
    """A gradient over four micro-batches on Megatron's schedule: off from all, or from the last."""
    every, errors = random_like(4, world.size, TOKENS, HIDDEN, seed=1), {}
    layer = nn.Linear(HIDDEN, 1, bias=False, dtype=torch.float64)
    layer.weight.data.copy_(random_like(1, HIDDEN, seed=2))
    (right,) = torch.autograd.grad(layer(every).square().mean(), layer.weight)
    (last,) = torch.autograd.grad(layer(every[-1]).square().mean() / 4, layer.weight)

    def forward(batches: Iterator[Tensor], model: nn.Module) -> tuple[Tensor, Any]:
        return model(next(batches)), lambda y: (y.square().mean(), {})

    for name, kind in (("inherited", Deferred), ("told", DeferredWithNoSync)):
        with megatron():
            settings = config(hidden=HIDDEN)
            replicas = kind(settings, layer)
            settings.no_sync_func = replicas.no_sync
            schedules.forward_backward_no_pipelining(
                forward_step_func=forward, data_iterator=iter(every[:, world.rank]),
                model=replicas, num_microbatches=4, seq_length=TOKENS, micro_batch_size=1,
            )  # fmt: skip
        errors[name] = difference(replicas.reduced, right)
        if kind is Deferred:
            errors["from the last"] = difference(replicas.reduced, last)
        layer.weight._post_accumulate_grad_hooks.clear()
    replicas = DataParallel(layer.named_parameters(), world.whole, backwards=4)
    for batch in every[:, world.rank]:
        (layer(batch).square().mean() / 4).backward()
    replicas.finish()
    return errors | {"ours": difference(layer.weight.grad, right)}
