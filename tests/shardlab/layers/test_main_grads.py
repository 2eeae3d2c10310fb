"""Data parallelism over `main_grad`: buckets that micro-batches, and layers, add into."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import Axis
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
