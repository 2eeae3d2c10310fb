"""Data parallelism over `main_grad`: buckets that micro-batches, and layers, add into."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import Axis, World
from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.layers.linear import ColumnParallelLinear
from shardlab.layers.matmul import fuse


def linears(gradient_accumulation: bool) -> nn.Sequential:
    axis = Axis.alone("tensor")
    model = nn.Sequential(*(ColumnParallelLinear(6, 6, axis=axis) for _ in range(3))).double()
    return fuse(model, gradient_accumulation=True) if gradient_accumulation else model


def micro_batches(rank: int, step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return list(torch.randn(3, 2, 2, 6, generator=generator, dtype=torch.float64).unbind())


def gradients_of(world: World, fused: bool, dtype: torch.dtype | None) -> list[list[Tensor]]:
    """What three steps of three micro-batches leave, the buckets' order changing after the first.

    The layers are called first, last, middle, so that gradients come in another order than the
    parameters'.
    """
    model = linears(fused).to(world.device)
    replicas = DataParallel(
        model.named_parameters(), world.whole, backwards=3, main_grads=dtype,
        bucket_bytes=300,
    )  # fmt: skip
    steps = []
    for step in range(3):
        replicas.zero_grad()
        for x in micro_batches(world.rank, step):
            y = model[1](model[2](model[0](x.to(world.device))))
            (y.square().sum() / 3).backward()
        replicas.finish()
        if dtype:
            assert all(p.grad is None for p in model.parameters())
        gradients = [getattr(p, replicas.attribute).clone() for p in model.parameters()]
        assert all(g.dtype == (dtype or torch.float64) for g in gradients)
        steps.append(gradients)
    return steps


@pytest.mark.parametrize("fused", [False, True])
def test_main_grads_hold_what_grads_would(pool: Any, fused: bool) -> None:
    plain = pool(2).run(gradients_of, False, None)
    for ours, right in zip(pool(2).run(gradients_of, fused, torch.float64), plain, strict=True):
        for step, expected in zip(ours, right, strict=True):
            for gradient, truth in zip(step, expected, strict=True):
                assert (gradient - truth).abs().max() <= 1e-12 * truth.abs().max()


def test_micro_batches_add_up_in_main_grads_dtype_not_in_the_weights() -> None:
    weight = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    replicas = DataParallel(
        [("weight", weight)], Axis.alone("data"), backwards=257, main_grads=torch.float32
    )
    replicas.zero_grad()
    for _ in range(257):  # bf16 stops counting at 256
        weight.sum().backward()
    replicas.finish()
    assert weight.main_grad.dtype == torch.float32  # type: ignore[attr-defined]
    assert weight.main_grad.item() == 257  # type: ignore[attr-defined]


def test_a_step_onto_the_last_ones_main_grads_is_refused() -> None:
    model = linears(gradient_accumulation=True)
    replicas = DataParallel(
        model.named_parameters(), Axis.alone("data"), main_grads=torch.float64
    )  # fmt: skip
    x = micro_batches(0, 0)[0]
    model(x).sum().backward()  # the first step finds zeros
    replicas.finish()
    with pytest.raises(RuntimeError, match=r"still holds the last step's: call zero_grad\(\)"):
        model(x).sum().backward()


def test_from_the_second_step_on_buckets_follow_the_order_in_which_gradients_came() -> None:
    model = linears(gradient_accumulation=True)
    named = dict(model.named_parameters())
    replicas = DataParallel(
        named.items(), Axis.alone("data"), main_grads=torch.float64, bucket_bytes=1
    )
    for order in (["2", "1", "0"], ["1", "2", "0"]):
        names = [slot.name for bucket in replicas.buckets for slot in bucket.slots]
        assert list(dict.fromkeys(name[0] for name in names)) == order
        model[1](model[2](model[0](micro_batches(0, 0)[0]))).sum().backward()
        replicas.finish()
        replicas.zero_grad()
        assert all(not p.main_grad.any() for p in named.values())  # type: ignore[attr-defined]
