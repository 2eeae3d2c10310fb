"""What the linears' backward overlaps, where it leaves the weight's gradient, and what it keeps."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from shardlab.comm import World
from shardlab.layers import matmul
from shardlab.layers.init import Init
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear
from shardlab.layers.matmul import fuse
from shardlab.proofs.ledger import Ledger
from tests.shardlab.layers.test_linear import EXACT, FP64, B, F, H, S, noise
from tests.shardlab.pool import on_ranks
from tests.shardlab.reference import relative_error


def order_of_backward(world: World, sequence_parallel: bool) -> list[str]:
    """What a column layer's backward starts, computes and waits for, in this order."""
    axis = world.whole
    layer = fuse(ColumnParallelLinear(H, F, axis=axis, sequence_parallel=sequence_parallel))
    layer.to(world.device)
    x = torch.zeros(S // (axis.size if sequence_parallel else 1), B, H, device=world.device)
    y = layer(x.requires_grad_())
    log: list[str] = []
    product = matmul._weight_gradient

    def wgrad(*args: Any) -> Any:
        log.append("wgrad")
        return product(*args)

    start = _noting(axis.start, log)
    with patch.object(axis, "start", start), patch.object(matmul, "_weight_gradient", wgrad):
        y.backward(torch.zeros_like(y))
    return log


def _noting(start: Any, log: list[str]) -> Any:
    class Noted:
        def __init__(self, kind: str, pending: Any) -> None:
            self.kind, self.pending = kind, pending

        def wait(self) -> Tensor:
            log.append(f"wait {self.kind}")
            result: Tensor = self.pending.wait()
            return result

    def noted(kind: str, x: Tensor, **options: Any) -> Any:
        log.append(f"start {kind}")
        return Noted(kind, start(kind, x, **options))

    return noted


def test_the_dgrad_all_reduce_is_under_way_while_wgrad_is_computed(pool) -> None:
    assert pool(2).run(order_of_backward, False)[0] == [
        "start all_reduce",
        "wgrad",
        "wait all_reduce",
    ]


def test_under_sequence_parallelism_gather_and_scatter_each_overlap_a_product(pool) -> None:
    assert pool(2).run(order_of_backward, True)[0] == [
        "start all_gather",
        "start reduce_scatter",
        "wait all_gather",
        "wgrad",
        "wait reduce_scatter",
    ]


@pytest.mark.parametrize("size", [1, 2])
@on_ranks("size")
def test_gradient_accumulation_adds_to_main_grad_and_leaves_grad_alone(world: World) -> None:
    axis = world.whole
    for kind, weight_dtype, main_dtype in [
        (ColumnParallelLinear, torch.float64, torch.float64),
        (RowParallelLinear, torch.float64, torch.float64),
        (ColumnParallelLinear, torch.bfloat16, torch.float32),
    ]:
        init = Init(dtype=weight_dtype, device=world.device)
        layer: Any = fuse(kind(H, F, axis=axis, init=init), gradient_accumulation=True)
        plain: Any = kind(H, F, axis=axis, init=init)
        layer.weight.main_grad = torch.ones_like(layer.weight, dtype=main_dtype)
        buffer = layer.weight.main_grad
        width = layer.weight.shape[1]
        x = noise(S, B, width, key=4, device=world.device).to(weight_dtype)
        for _ in range(2):
            layer(x).sum().backward()
            plain(x).sum().backward()
        assert layer.weight.grad is None
        assert layer.weight.main_grad is buffer
        # Summed in main_grad's dtype there, in the weight's here: bf16 rounds more often.
        limit = EXACT if weight_dtype == torch.float64 else 0.02
        assert relative_error(buffer - 1, plain.weight.grad) <= limit
        assert relative_error(layer.bias.grad, plain.bias.grad) == 0


def hooks_after_none(world: World) -> list[tuple[str, bool]]:
    """What hooks ran, and whether main_grad was complete by then."""
    layer = fuse(ColumnParallelLinear(H, F, axis=world.whole), gradient_accumulation=True)
    layer.to(world.device)
    main_grad = layer.weight.main_grad = torch.zeros_like(layer.weight)
    log: list[tuple[str, bool]] = []

    def note(name: str) -> None:
        log.append((name, bool((main_grad == S * B).all())))

    layer.weight.register_post_accumulate_grad_hook(lambda _: note("post-accumulate"))
    node = layer.weight.view_as(layer.weight).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: note("node"))
    layer(torch.ones(S, B, H, device=world.device)).sum().backward()
    return log


def test_hooks_on_a_weight_run_once_its_main_grad_is_complete(pool) -> None:
    assert pool(2).run(hooks_after_none)[0] == [("post-accumulate", True), ("node", True)]


@pytest.mark.parametrize("accumulates", [False, True])
@on_ranks(2)
def test_a_frozen_weight_keeps_no_input_and_still_sums_dgrad(
    world: World, accumulates: bool
) -> None:
    """Nor does it need a main_grad."""
    for kind in (ColumnParallelLinear, RowParallelLinear):
        layer: Any = kind(H, F, axis=world.whole, init=FP64)
        fuse(layer, gradient_accumulation=accumulates)
        layer.requires_grad_(False)
        x = torch.ones(S, B, layer.weight.shape[1], dtype=torch.float64, requires_grad=True)
        y = layer(x)
        saved = [t for t in y.grad_fn.saved_tensors if t is not None]
        assert len(saved) == 1
        assert saved[0] is layer.weight
        with Ledger() as ledger:
            y.sum().backward()
        assert layer.weight.grad is None
        assert ledger.total().count == (1 if kind is ColumnParallelLinear else 0)
