"""The arithmetic against what our own code sends: layers, replicas, shards, pipelines, all of it.

Most cases run on one process under torch's fake backend, where every place of every grid can be
tried; it moves no data, so values mean nothing here. The last ones run the same on gloo, and over
shared memory: what is asked for must not depend on who carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pages.ranks import alone
from shardlab.comm import World
from shardlab.gpt.block import Block
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from shardlab.layers.init import Init
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear
from shardlab.layers.matmul import fuse
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.proofs import formulas
from shardlab.proofs.collective import Traffic, calls
from shardlab.proofs.formulas import Sizes
from shardlab.proofs.ledger import Ledger
from shardlab.training.step import StepGradients

S, B, H, F, V = 8, 2, 16, 24, 26
TOKENS = S * B
FP64 = Init(dtype=torch.float64)


def assert_equal(ledger: Ledger, expected: Traffic) -> None:
    actual = Traffic(
        ledger.calls(phase=""), ledger.calls(phase="backward"), ledger.calls(phase="step")
    )
    assert actual == expected, f"\n{ledger.summary()}\nexpected {expected}"
    assert ledger.total().wire == pytest.approx(expected.wire, rel=1e-15)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64, requires_grad=True)


# ------------------------------------------------------------------ tensor parallelism


def config(layers: int = 2, **settings: Any) -> GPTConfig:
    return GPTConfig(
        layers=layers, hidden=H, heads=8, vocab=V, sequence=S, dtype=torch.float64, **settings
    )


@pytest.mark.parametrize("form", [nn.Identity(), fuse], ids=["plain", "fused"])
@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_each_layer_sends_what_its_formula_says_forward_and_backward(
    size: int, sequence: bool, form: Callable[[Any], Any]
) -> None:
    sequence = sequence and size > 1
    axis_sizes = {"tokens": TOKENS, "ranks": size, "itemsize": 8}
    sizes: dict[str, Any] = axis_sizes | {"sequence_parallel": sequence}
    again = {"gathers_again": form is fuse}
    rows = S // size if sequence else S
    tokens = torch.zeros(S, B, dtype=torch.int64)
    with alone(size - 1, size) as world:
        axis = world.whole
        layer: dict[str, Any] = {"axis": axis, "init": FP64, "sequence_parallel": sequence}
        column = form(ColumnParallelLinear(H, F, **layer))
        row = form(RowParallelLinear(F, H, **layer))
        embedding = VocabParallelEmbedding(V, H, **layer)
        head = form(VocabParallelHead(V, H, **layer))
        block = form(Block(config(), "block", **layer))
        cases: list[tuple[Callable[[], Tensor], Traffic]] = [
            (lambda: column(zeros(rows, B, H)),
             formulas.column_parallel(features=H, **sizes, **again)),
            (lambda: column(zeros(rows, B, H).detach()),
             formulas.column_parallel(features=H, input_gradient=False, **sizes, **again)),
            (lambda: row(zeros(S, B, F // size)), formulas.row_parallel(features=H, **sizes)),
            (lambda: embedding(tokens), formulas.embedding(hidden=H, **sizes)),
            (lambda: head(zeros(rows, B, H)),
             formulas.column_parallel(features=H, **sizes, **again)),
            (lambda: block(zeros(rows, B, H)), formulas.block(hidden=H, **sizes, **again)),
            (lambda: cross_entropy(zeros(S, B, V // size), tokens, axis=axis),
             formulas.cross_entropy(**axis_sizes)),
        ]  # fmt: skip
        for call, expected in cases:
            with Ledger() as ledger:
                call().sum().backward()
            assert_equal(ledger, expected)


def test_a_block_costs_the_same_on_the_wire_with_sequence_parallelism_but_for_two_gathers() -> None:
    sizes = {"tokens": TOKENS, "hidden": H, "ranks": 4, "itemsize": 8}
    payload = TOKENS * H * 8
    without = formulas.block(**sizes)
    cut = formulas.block(**sizes, sequence_parallel=True)
    assert without.wire == 4 * 2 * (3 / 4) * payload
    assert cut.wire - without.wire == 2 * (3 / 4) * payload
    assert formulas.block(**sizes, sequence_parallel=True, gathers_again=False).wire == without.wire


# ------------------------------------------------------------------ sharded data parallelism


def test_full_sharding_costs_half_as_much_again_as_replicas_but_for_the_root() -> None:
    sizes = {"itemsize": 4, "ranks": 8}
    replicas = formulas.data_parallel([64 * 4, 64 * 4], ranks=8).wire
    assert formulas.fully_sharded([0, 128], **sizes).wire == 1.5 * replicas
    assert formulas.fully_sharded([128, 0], **sizes).wire == replicas
    no_reshard = formulas.fully_sharded([0, 128], reshards_after_forward=False, **sizes)
    assert no_reshard.wire == replicas


# ------------------------------------------------------------------ pipelines and 3D


KINDS: dict[str, dict[str, Any]] = {
    "gpt": {}, "llama": LLAMA, "qwen3": LLAMA | {"head_size": 6, "qk_norm": True},
}  # fmt: skip


def three_d(
    world: World, schedule: str, sizes: Sequence[int], sequence: bool, tied: bool,
    kind: str = "gpt",
) -> tuple[Ledger, Traffic]:  # fmt: skip
    """The first step of a GPT on tensor × pipeline × data, and what it must have sent.

    Beside the formula the first step has a broadcast: data ranks agree on the order of buckets.
    """
    tensor, stages, _ = sizes
    micro_batches, layers = 2, max(2, stages)
    links = {"tensor": "shared-memory"} if schedule == "shared memory" else None
    grid = Grid(world=world, tensor=tensor, pipeline=stages, links=links)
    stage = grid.pipeline.rank
    model = GPT(
        config(layers, **KINDS[kind] | {"tie_embeddings": tied}),
        tensor=grid.tensor, sequence_parallel=sequence,
        stage=stage, stages=stages, device=world.device,
    )  # fmt: skip
    gradients = StepGradients(
        model, grid, microbatches=micro_batches, start="trust", bucket_bytes=4000
    )
    tokens = torch.zeros(B, S, dtype=torch.int64, device=world.device)
    actions = by_name("1f1b" if schedule == "shared memory" else schedule, stages, micro_batches)
    with Ledger() as ledger:
        run(
            actions, model, [(tokens, tokens)] * micro_batches, model.loss, axis=grid.pipeline,
            shape=model.hidden_shape(B, S), device=world.device,
        )  # fmt: skip
        with ledger.phase("step"):
            gradients.finish()
    settings = {
        "tokens": TOKENS, "hidden": H, "layers": layers, "itemsize": 8, "tensor": tensor,
        "stages": stages, "data": grid.data.size, "micro_batches": micro_batches,
    }  # fmt: skip
    buckets = [bucket.flat_N.nbytes for bucket in gradients.replicas.buckets]
    assert sum(buckets) == sum(p.nbytes for p in model.parameters())
    # Two norms and two row biases a block; positions on the first stage, a norm on the last.
    partial = layers // stages * 6 * H + (stage == 0) * S * H + (stage == stages - 1) * 2 * H
    if kind != "gpt":  # norms without bias, no row bias, no positions
        partial = layers // stages * 2 * H + (stage == stages - 1) * H
    parameters = len(list(model.parameters()))
    order = Traffic(step=calls("broadcast", parameters * 8, grid.data.size))
    return ledger, order + formulas.step(
        Sizes(**settings, sequence_parallel=sequence and tensor > 1), stage, buckets=buckets,
        partial=partial, tied=-(-V // tensor) * H if tied else 0,
        head_norms=layers // stages * 2 * 6 if kind == "qwen3" else 0,
    )  # fmt: skip


GRIDS = [g for g in product([1, 2, 4, 8], repeat=3) if prod(g) <= 8]


@pytest.mark.parametrize("sizes", GRIDS, ids=lambda g: "x".join(map(str, g)))
def test_a_step_on_every_grid_up_to_eight_ranks_sends_what_the_formula_says(
    sizes: Sequence[int],
) -> None:
    tensor, stages, data = sizes
    for stage in sorted({0, stages // 2, stages - 1}):
        for sequence, tied, schedule, kind in [
            (False, True, "1f1b", "gpt"), (True, False, "gpipe", "gpt"),
            (True, True, "1f1b", "llama"), (True, False, "1f1b", "qwen3"),
            (False, True, "gpipe", "qwen3"),
        ]:  # fmt: skip
            with alone(stage * tensor * data, prod(sizes)) as world:
                ledger, expected = three_d(world, schedule, sizes, sequence, tied, kind)
            # The runner's sends and receives stand outside of autograd, whichever way they go.
            assert ledger.calls() == expected.all, f"\n{ledger.summary()}\n{expected}"


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_pipeline_sends_the_same_bytes_under_every_schedule(stages: int, schedule: str) -> None:
    chunks = 2 if schedule == "interleaved" and stages > 1 else 1
    actions = by_name(schedule if chunks == 2 or schedule != "interleaved" else "1f1b", stages, 4)
    for stage in range(stages):
        with alone(stage, stages) as world, Ledger() as ledger:
            modules = [nn.Linear(H, H).double() for _ in range(chunks)]
            batch = zeros(B, H).detach()
            run(
                actions, modules, [(batch, batch)] * 4, lambda y, _: y.sum(), axis=world.whole,
                shape=(B, H),
            )  # fmt: skip
        expected = formulas.pipeline(
            payload=B * H * 8, micro_batches=4, stage=stage, stages=stages, chunks=chunks
        )
        assert ledger.calls() == expected.all


# ------------------------------------------------------------------ the same on real links


def on_gloo(world: World, schedule: str, sizes: Sequence[int], sequence: bool) -> None:
    ledger, expected = three_d(world, schedule, sizes, sequence, True)
    assert ledger.calls() == expected.all, f"\n{ledger.summary()}\n{expected}"
    names = {"tensor", "pipeline", "data", "embedding", "tensor-pipeline"}
    assert {entry.axis for entry in ledger.entries} == names


@pytest.mark.ci
@pytest.mark.parametrize("schedule", ["1f1b", "shared memory"])
def test_real_ranks_send_the_same_over_gloo_and_over_shared_memory(
    pool, device: str, schedule: str
) -> None:
    if device == "cpu" or schedule != "shared memory":
        pool(8).run(on_gloo, schedule, (2, 2, 2), True)
