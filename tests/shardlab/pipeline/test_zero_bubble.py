"""ZB-H1 run: backward in two gives the gradients of backward in one, to the bit.

A weight whose gradient came in backward after all, twice or not at all shows in the comparison with
1F1B; one that data parallelism took for done too early, in the composition with it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from shardlab.comm import Axis, World
from shardlab.experts.expert_config import ExpertConfig
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers import deferred_weight_grad
from shardlab.layers.matmul import fuse
from shardlab.pipeline.action import Schedule, ScheduleError, Weight
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from tests.shardlab.difference import differences, list_exceeding
from tests.shardlab.pool import on_ranks

CONFIG = GPTConfig(
    layers=4, hidden=16, heads=4, ffn=16, vocab=21, sequence=8, init_std=0.2, dtype=torch.float64
)
EXPERTS = replace(
    CONFIG, experts=ExpertConfig(count=3, top_k=1, pre_softmax=True, ffn=8, capacity=1.0)
)


def stage_of(world: World, axis: Axis, config: GPTConfig = CONFIG) -> GPT:
    return GPT(config, tensor=Axis.alone(), stage=axis.rank, stages=axis.size)


def batch(m: int) -> list[tuple[Tensor, Tensor]]:
    text = torch.randint(21, (m, 2, 9), generator=torch.Generator().manual_seed(m))
    return [(words[:, :-1], words[:, 1:]) for words in text]


def step(axis: Axis, stage: Any, model: GPT, schedule: Schedule, m: int) -> list[Tensor]:
    return run(schedule, stage, batch(m), model.loss, axis=axis, shape=model.hidden_shape(2, 8))


def recomputed(model: GPT, reentrant: bool) -> GPT:
    for block in model.layers.values():
        block.forward = partial(checkpoint, block.forward, use_reentrant=reentrant)
    return model


def gradients(model: GPT) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def compare_with_1f1b(world: World) -> dict[str, dict[str, float]]:
    axis, errors = world.axis("pipeline", range(world.size)), {}
    for m in (1, 2, 6):
        expected: dict[str, Tensor] = {}
        for case in ("1f1b", "plain", "fused", "recomputed", "reentrant", "frozen"):
            model = stage_of(world, axis)
            before = [(module.linear, module.fused) for module in linears(model)]
            if case == "fused":
                before = [(module.linear, module.fused) for module in linears(fuse(model))]
            if case in ("recomputed", "reentrant"):
                recomputed(model, case == "reentrant")
            if case == "frozen":
                for name, parameter in model.named_parameters():
                    parameter.requires_grad_("fc1" not in name)
            kind = "1f1b" if case == "1f1b" else "zb-h1"
            step(axis, model, model, by_name(kind, world.size, m), m)
            expected = expected or gradients(model)
            wanted = {n: expected[n] for n, p in model.named_parameters() if p.requires_grad}
            errors[f"{case}, {m} micro-batches"] = differences(gradients(model), wanted)
            assert [(module.linear, module.fused) for module in linears(model)] == before
    return errors


def compare_experts_with_1f1b(world: World) -> dict[str, dict[str, float]]:
    axis, results = world.axis("pipeline", range(world.size)), []
    for kind in ("1f1b", "zb-h1"):
        model = stage_of(world, axis, EXPERTS)
        step(axis, model, model, by_name(kind, world.size, 3), 3)
        results.append(gradients(model))
    return {"experts": differences(*reversed(results))}


def linears(model: GPT) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "product")]


@pytest.mark.parametrize("p", [1, 4])
def test_gradients_are_those_of_1f1b_to_the_bit_also_for_fewer_micro_batches_than_stages(
    pool: Any, p: int
) -> None:
    assert list_exceeding(pool(p).run(compare_with_1f1b), tolerance=0) == []
    assert list_exceeding(pool(p).run(compare_experts_with_1f1b), tolerance=0) == []


def count_hooks(
    world: World, config: GPTConfig, weight: str
) -> tuple[list[str], dict[str, list[int]]]:
    """When each weight's gradient arrives: the hook that data parallelism hangs on it."""
    model = GPT(config, tensor=Axis.alone())
    arrivals: list[str] = []
    for name, parameter in model.named_parameters():
        note = partial(lambda name, _: arrivals.append(name), name)
        parameter.register_post_accumulate_grad_hook(note)
    order: list[str] = []
    compute = deferred_weight_grad.compute_weight_grads
    with pytest.MonkeyPatch.context() as patch:

        def record_arrivals(deferred: deferred_weight_grad.DeferredGrads) -> None:
            order.append(f"{arrivals.count(f'layers.0.mlp.{weight}')} before")
            compute(deferred)

        patch.setattr("shardlab.pipeline.run.compute_weight_grads", record_arrivals)
        step(Axis.alone("pipeline"), model, model, by_name("zb-h1", 1, 3), 3)
    return order, {name: arrivals.count(name) for name, _ in model.named_parameters()}


@pytest.mark.parametrize(
    ("config", "weight"), [(CONFIG, "fc1.weight"), (EXPERTS, "experts.2.fc1.weight")]
)
def test_every_hook_runs_once_a_micro_batch_and_a_weights_after_its_own_action(
    pool: Any, config: GPTConfig, weight: str
) -> None:
    order, counts = pool(1).run(count_hooks, config, weight)[0]
    assert order == ["0 before", "1 before", "2 before"]
    assert set(counts.values()) == {3}  # the tied embedding's too, whose head is left whole


def refusals(world: World) -> list[str]:
    axis, words = Axis.alone("pipeline"), []
    whole = by_name("zb-h1", 1, 2)
    short = [[action for action in whole[0] if action != Weight(1)]]
    accumulating = fuse(GPT(CONFIG, tensor=Axis.alone()), gradient_accumulation=True)
    for schedule, model, strategy in [
        (short, GPT(CONFIG, tensor=Axis.alone()), None),
        (whole, accumulating, None),
        (whole, GPT(CONFIG, tensor=Axis.alone()), "FULL_SHARD"),
        (whole, GPT(CONFIG, tensor=Axis.alone()), "NO_SHARD"),
    ]:
        stage = model if strategy is None else FSDP(
            model, world.axis("data", [0]), units=model.layers.values(),
            strategy=ShardingStrategy[strategy],
        )  # fmt: skip
        try:
            step(axis, stage, model, schedule, 2)
        except (ScheduleError, ValueError) as error:
            words.append(str(error))
    return words


def test_weights_never_computed_fsdp_and_main_grads_of_fuse_are_refused(pool: Any) -> None:
    missing, accumulating, sharded, whole = pool(1).run(refusals)[0]
    assert missing == "stage 0 ends without W1: gradients lack a part"
    assert "fuse without it, or choose --schedule 1f1b" in accumulating
    assert "FSDP reduces gradients" in sharded == whole


@on_ranks(1)
def test_what_fails_in_the_weights_part_is_raised_and_leaves_nothing_behind(world: World) -> None:
    """A hook that raises in a `Weight`; then the step again, with nothing left of it."""
    axis = Axis.alone("pipeline")
    model, right = GPT(CONFIG, tensor=Axis.alone()), GPT(CONFIG, tensor=Axis.alone())

    def fails(_: Tensor) -> None:
        raise RuntimeError("no memory")

    hook = model.layers["1"].mlp.fc1.weight.register_post_accumulate_grad_hook(fails)
    before = [(module.linear, module.fused) for module in linears(model)]
    words = ""
    try:
        step(axis, model, model, by_name("zb-h1", 1, 2), 2)
    except RuntimeError as error:
        words = str(error)
    assert [(module.linear, module.fused) for module in linears(model)] == before
    hook.remove()
    model.zero_grad()
    step(axis, model, model, by_name("zb-h1", 1, 2), 2)
    step(axis, right, right, by_name("1f1b", 1, 2), 2)
    assert words, max(differences(gradients(model), gradients(right)).values()) == (
        "no memory",
        0.0,
    )
