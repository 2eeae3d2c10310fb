"""The arithmetic against what others really send: PyTorch's and Megatron's own code on gloo.

Exactly: every collective with its bytes, forward and backward. A wrong formula shows here as well
as a wrong count, so the two are tested against code that knows of neither.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

from costlab.implementations import dtensor
from costlab.implementations import megatron as mcore
from costlab.implementations.megatron import gpt as megatron_model
from pages.ranks import alone
from shardlab.comm import World
from shardlab.gpt.config import GPTConfig
from shardlab.grid.grid import Grid
from shardlab.proofs import formulas
from shardlab.proofs.collective import Traffic
from shardlab.proofs.ledger import Ledger
from tests.shardlab.pool import on_ranks

S, B, H, F, V = 4, 2, 8, 12, 24
TOKENS = S * B


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations, of one in the other
        yield


def traffic_of(ledger: Ledger) -> Traffic:
    return Traffic(ledger.calls(phase=""), ledger.calls(phase="backward"))


def assert_equal(ledger: Ledger, expected: Traffic) -> None:
    assert traffic_of(ledger) == expected, f"\n{ledger.summary()}\nexpected {expected}"
    assert ledger.total().wire == pytest.approx(expected.wire, rel=1e-15)


# ------------------------------------------------------------------ sharded data parallelism

SHAPES = [[(5, 6), (5,)], [(7, 5), (7,)], [(3, 7), (3,)]]  # of each unit, the root first
NUMELS = [[5 * 6, 5], [7 * 5, 7], [3 * 7, 3]]


def three_units(device: torch.device) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 5), nn.Sequential(nn.Linear(5, 7)), nn.Sequential(nn.Linear(7, 3))
    )
    return model.to(device=device, dtype=torch.float64)


def step(model: nn.Module, x: Tensor, silent: Callable[[], Any], micro_batches: int) -> Ledger:
    """A step of which only the last micro-batch reduces gradients; the second such step."""
    for _ in range(2):
        with Ledger() as ledger:
            for index in range(micro_batches):
                with silent() if index < micro_batches - 1 else nullcontext():
                    model(x).sum().backward()
    return ledger


STRATEGIES = {
    ShardingStrategy.FULL_SHARD: {"ranks": 4},
    ShardingStrategy.SHARD_GRAD_OP: {"ranks": 4, "reshards_after_forward": False},
    ShardingStrategy.HYBRID_SHARD: {"ranks": 2, "replicas": 2},
    ShardingStrategy._HYBRID_SHARD_ZERO2: {
        "ranks": 2, "replicas": 2, "reshards_after_forward": False,
    },
    ShardingStrategy.NO_SHARD: {"ranks": 1, "replicas": 4},
}  # fmt: skip


def fsdp1(world: World) -> None:
    for strategy, sizes in STRATEGIES.items():
        for micro_batches in (1, 3):
            mesh = None
            if "HYBRID" in strategy.name:
                mesh = Grid(world=world, tensor=2).device_mesh()["data", "tensor"]
            with quiet():
                model = FullyShardedDataParallel(
                    three_units(world.device),
                    sharding_strategy=strategy,
                    device_mesh=mesh,
                    device_id=world.device,
                    auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}),
                )
                x = torch.ones(2, 6, dtype=torch.float64, device=world.device)
                ledger = step(model, x, model.no_sync, micro_batches)
            units = [formulas.flat_elements(numels, sizes["ranks"]) for numels in NUMELS]
            expected = formulas.fully_sharded(
                units, itemsize=8, micro_batches=micro_batches, **sizes
            )
            assert_equal(ledger, expected)


def test_fsdp1_sends_what_the_formula_says_in_every_strategy_and_with_accumulation(pool) -> None:
    pool(4).run(fsdp1)


def fsdp2(world: World) -> None:
    mesh = Grid(world=world, tensor=2).device_mesh()
    for sizes in (
        {"ranks": 4, "reshards_after_forward": True},
        {"ranks": 4, "reshards_after_forward": False},
        {"ranks": 2, "replicas": 2, "reshards_after_forward": True},
        {"ranks": 2, "replicas": 2, "reshards_after_forward": False},
    ):
        for micro_batches in (1, 3):
            model = three_units(world.device)
            over = (
                mesh["data", "tensor"] if "replicas" in sizes else mesh["data", "tensor"]._flatten()
            )
            for unit in (model[1], model[2]):
                fully_shard(unit, mesh=over, reshard_after_forward=sizes["reshards_after_forward"])
            fully_shard(model, mesh=over)

            @contextmanager
            def silent(model: Any = model) -> Iterator[None]:
                model.set_requires_gradient_sync(False)
                yield
                model.set_requires_gradient_sync(True)

            x = torch.ones(2, 6, dtype=torch.float64, device=world.device)
            ledger = step(model, x, silent, micro_batches)
            units = [formulas.per_parameter_elements(s, sizes["ranks"]) for s in SHAPES]
            expected = formulas.fully_sharded(
                units, itemsize=8, micro_batches=micro_batches, keeps_unsynced=False, **sizes
            )
            assert_equal(ledger, expected)


def test_fsdp2_sends_what_the_formula_says_in_every_strategy_and_with_accumulation(pool) -> None:
    pool(4).run(fsdp2)


# ------------------------------------------------------------------ data parallelism


@on_ranks(4)
def test_ddp_sends_each_bucket_once_and_nothing_in_the_passes_without_sync(world: World) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(5))).to(world.device)
    cap = 3000 / 2**20
    with quiet():
        replicas = DistributedDataParallel(model, bucket_cap_mb=cap, gradient_as_bucket_view=True)
    x = torch.ones(2, 16, device=world.device)
    for _ in range(2):  # DDP lays its buckets out anew after the first backward
        replicas(x).sum().backward()
    with Ledger() as ledger:
        with replicas.no_sync():
            replicas(x).sum().backward()
        replicas(x).sum().backward()
    # Gradients come from the last layer to the first, in each the bias before the weight.
    gradients = [p.nbytes for layer in reversed(model) for p in (layer.bias, layer.weight)]
    buckets = formulas.bucket_sizes(gradients, [3000])
    assert buckets == [3 * 1088, 2 * 1088]
    assert_equal(ledger, formulas.data_parallel(buckets, ranks=world.size))


# ------------------------------------------------------------------ tensor parallelism


def megatron_gpt(world: World) -> None:
    for sequence in (False, True):
        config = mcore.config(hidden=H, heads=4, depth=3, sequence_parallel=sequence)
        model = megatron_model.gpt(config, vocab=V, sequence=S, tied=True)
        tokens = torch.arange(TOKENS).view(B, S) % V
        positions = torch.arange(S).expand(B, S)
        with Ledger() as ledger:
            logits = model(tokens, positions, megatron_model.causal_mask(S))
            loss = mcore.vocab_parallel_cross_entropy(
                logits.transpose(0, 1).contiguous(), tokens.t().contiguous()
            )
            loss.sum().backward()
        axis: dict[str, Any] = {"tokens": TOKENS, "ranks": world.size}
        sizes = axis | {"itemsize": 8, "sequence_parallel": sequence}
        expected = (
            formulas.embedding(hidden=H, sliced=True, **sizes)
            + formulas.block(hidden=H, **sizes) * 3
            + formulas.column_parallel(features=H, **sizes)
            + formulas.megatron_cross_entropy(**axis)
        )
        assert_equal(ledger, expected)
        assert {entry.axis for entry in ledger.entries} == {"TENSOR_MODEL_PARALLEL_GROUP"}


def in_megatron(world: World) -> None:
    with mcore.megatron(tensor=world.size):
        megatron_gpt(world)


@pytest.mark.parametrize(
    "size", [2, pytest.param(4, marks=pytest.mark.ci)]
)  # the fake backend has four
def test_megatron_sends_what_the_formula_says_with_and_without_sequence_parallelism(
    pool, size: int
) -> None:
    pool(size).run(in_megatron)


def dtensor_gpt(world: World) -> None:
    mesh = Grid(world=world, tensor=world.size).device_mesh()["tensor"]
    for sequence in (False, True):
        torch.manual_seed(0)
        whole = dtensor.WholeGPT(
            GPTConfig(layers=2, hidden=H, heads=4, vocab=V, sequence=S, tie_embeddings=False)
        )
        model = dtensor.tensor_parallel(
            whole.to(world.device, torch.float64), mesh, sequence_parallel=sequence
        )
        tokens = torch.arange(TOKENS, device=world.device).view(B, S) % V
        with Ledger() as ledger:
            model(tokens).to_local().sum().backward()
        sizes: dict[str, Any] = {
            "tokens": TOKENS, "ranks": world.size, "itemsize": 8, "sequence_parallel": sequence
        }  # fmt: skip
        keeps = {"gathers_again": False}
        expected = (
            formulas.embedding(hidden=H, sliced=True, **sizes)
            + formulas.block(hidden=H, **sizes, **keeps) * 2
            + formulas.column_parallel(features=H, **sizes, **keeps)
        )
        assert_equal(ledger, expected)


@pytest.mark.parametrize(
    "size", [2, pytest.param(4, marks=pytest.mark.ci)]
)  # the fake backend has four
def test_dtensor_sends_what_the_formula_says_with_and_without_sequence_parallelism(
    pool, size: int
) -> None:
    pool(size).run(dtensor_gpt)


# ------------------------------------------------------------------ on one process

BODIES = [fsdp1, fsdp2, in_megatron, dtensor_gpt]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_one_process_under_the_fake_backend_counts_the_same(body: Callable[[World], None]) -> None:
    """But for DDP: torch 2.13's reducer refuses the fake backend, which returns no tensors."""
    with alone(3, 4) as world:
        body(world)
