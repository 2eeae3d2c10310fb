"""Mixed precision: which dtype stands where, and how far its results are from fp64's, measured.

The envelopes are relative errors against fp64 on this very model, with a margin of about three.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

from shardlab.comm import World
from shardlab.fsdp import FSDP, MixedPrecision, ShardingStrategy
from shardlab.proofs.ledger import Ledger
from tests.shardlab.default_device import on_default_device
from tests.shardlab.fsdp_models import (
    Transformer,
    batch,
    furthest,
    gathered_gradients,
    gathered_parameters,
    train_sharded,
    train_whole,
)
from tests.shardlab.pool import on_ranks

Pool = Callable[[int], Any]
S = ShardingStrategy
BF16, FP32 = torch.bfloat16, torch.float32


@on_default_device
def dtypes(world: World) -> None:
    for strategy in (S.FULL_SHARD, S.NO_SHARD):
        module = Transformer(dtype=FP32)
        model = FSDP(
            module, world.whole, units=module.blocks, strategy=strategy,
            mixed_precision=MixedPrecision(BF16, FP32),
        )  # fmt: skip
        seen: set[Any] = set()
        module.blocks[1].up.register_forward_hook(
            lambda m, x, y, seen=seen: seen.update((m.weight.dtype, x[0].dtype, y.dtype))
        )
        with Ledger() as ledger:
            model(*batch(world.rank, 0)).backward()
        assert seen == {BF16}
        assert {e.dtype for e in ledger.select("all_gather")} <= {BF16}
        assert {e.dtype for e in ledger.entries if e.op != "all_gather"} == {FP32}
        for parameter in model.parameters():
            assert parameter.dtype == FP32
            assert parameter.grad is not None
            assert parameter.grad.dtype == FP32


def test_parameters_travel_in_param_dtype_gradients_in_reduce_dtype_and_shards_keep_their_own(
    pool: Pool,
) -> None:
    pool(2).run(dtypes)


@on_ranks(2, default_device=True)
def test_gradients_without_sync_add_up_in_reduce_dtype(world: World) -> None:
    """Sixty-four equal gradients add up in fp32; bf16 would stop growing at some 2⁸ of one."""
    module = Transformer(dtype=FP32)
    model = FSDP(
        module, world.whole, units=module.blocks, mixed_precision=MixedPrecision(BF16, FP32)
    )
    model(*batch(world.rank, 0)).backward()
    once = gathered_gradients(model)
    model.zero_grad()
    with model.no_sync():
        for _ in range(63):
            model(*batch(world.rank, 0)).backward()
    model(*batch(world.rank, 0)).backward()
    many = gathered_gradients(model)
    assert furthest(many, {name: 64 * grad for name, grad in once.items()}) < 1e-5


@on_ranks(2, default_device=True)
def test_inputs_are_cast_unless_told_not_to(world: World) -> None:
    linear = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4)
    model = FSDP(linear, world.whole, mixed_precision=MixedPrecision(BF16))
    assert model(x).dtype == BF16
    uncast = MixedPrecision(BF16, cast_forward_inputs=False)
    model = FSDP(torch.nn.Linear(4, 4), world.whole, mixed_precision=uncast)
    try:
        model(x)
    except RuntimeError as error:
        assert "dtype" in str(error)
    else:
        raise AssertionError("bf16 weights met fp32 inputs")


# Largest relative error over the parameters' gradients after one step, and over the parameters
# after ten steps of SGD; (param_dtype, reduce_dtype) over fp32 shards.
ENVELOPES: dict[tuple[torch.dtype | None, torch.dtype | None], tuple[float, float]] = {
    (None, None): (2e-6, 5e-7),
    (None, BF16): (1e-2, 3e-3),
    (BF16, FP32): (5e-2, 8e-3),
    (BF16, BF16): (5e-2, 8e-3),
}


@on_ranks(2, default_device=True)
def test_each_pair_of_dtypes_stays_in_its_measured_envelope(world: World) -> None:
    whole = Transformer()
    _, gradients = train_whole(whole, world.size, "sgd", steps=10)
    expected: dict[str, Tensor] = dict(whole.named_parameters())
    errors_by_case = {}
    for dtypes, strategy in product(ENVELOPES, (S.FULL_SHARD, S.NO_SHARD)):
        module = Transformer(dtype=FP32)
        model = FSDP(
            module, world.whole, units=module.blocks, strategy=strategy,
            mixed_precision=MixedPrecision(*dtypes),
        )  # fmt: skip
        _, ours = train_sharded(model, world.rank, "sgd", steps=10, look=(0,))
        first = {name: grad.double() for name, grad in ours[0].items()}
        last = {name: x.double() for name, x in gathered_parameters(model).items()}
        errors_by_case[f"{dtypes} {strategy.name}"] = (
            furthest(first, gradients[0]),
            furthest(last, expected),
        )
    for case, errors in errors_by_case.items():
        limits = next(e for dtypes, e in ENVELOPES.items() if case.startswith(str(dtypes)))
        assert errors[0] < limits[0] and errors[1] < limits[1], (case, errors)
