"""Where megatron-core 0.16.1 is wrong, or differs on purpose, and ours is not a copy.

Each test says what Megatron does, proves that it still does, and that ours doesn't. When an upgrade
mends one the test fails and says so: then the fault moves into the equalities of
test_against_megatron_*.py, and goes from here.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from costlab.implementations.megatron import (
    ColumnParallelLinear,
    VocabParallelEmbedding,
    bias_gelu,
    config,
    mappings,
    megatron,
    package_info,
    parallel_state,
    vocab_parallel_cross_entropy,
)
from shardlab.comm import World
from shardlab.layers import linear, ops
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.layers.init import Init
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import random_like

MENDED = "megatron-core has mended this: move the case into the equality tests"


def test_the_oracle_is_the_version_whose_faults_these_are() -> None:
    assert package_info.__version__ == "0.16.1"


def filled(world: World, *shape: int) -> Tensor:
    """A tensor that holds rank + 1 everywhere, so a sum over two ranks is 3."""
    return torch.full(shape, world.rank + 1.0, dtype=torch.float64, device=world.device)


def forward_of_reduce(world: World) -> list[tuple[Tensor, Tensor]]:
    """(argument afterwards, result) for Megatron's and ours."""
    seen = []
    with default_device(world), megatron(tensor=world.size):
        group = parallel_state.get_tensor_model_parallel_group()
        for reduce in (
            lambda x: mappings.reduce_from_tensor_model_parallel_region(x, group=group),
            lambda x: ops.reduce_from(x, world.whole),
        ):
            x = filled(world, 2, 3)
            seen.append((x, reduce(x).clone()))
    return seen


def test_a_reduction_overwrites_its_argument(pool: Any) -> None:
    for rank, ((reference, sum_), (ours, our_sum)) in enumerate(pool(2).run(forward_of_reduce)):
        assert torch.all(sum_ == 3)
        assert torch.all(reference == 3), MENDED
        assert torch.all(ours == rank + 1)
        assert torch.all(our_sum == 3)


def residual_gradient(world: World) -> tuple[Tensor, Tensor]:
    gradients = []
    with default_device(world), megatron(tensor=world.size):
        group = parallel_state.get_tensor_model_parallel_group()
        for copy in (
            lambda x: mappings.copy_to_tensor_model_parallel_region(x, group=group),
            lambda x: ops.copy_to(x, world.whole),
        ):
            x, source = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
            residual = source * 1.0  # made before the copy, so its backward runs after the copy's
            (residual + copy(x)).backward(filled(world, 2))
            assert source.grad is not None
            gradients.append(source.grad)
    return gradients[0], gradients[1]


def test_reducing_a_gradient_in_place_changes_that_of_the_residual_beside_it(pool: Any) -> None:
    # An addition hands one gradient tensor to both its inputs; the copy's backward overwrites it.
    for rank, (reference, ours) in enumerate(pool(2).run(residual_gradient)):
        assert torch.all(reference == 3), MENDED
        assert torch.all(ours == rank + 1)


def out_of_vocabulary(world: World) -> tuple[Tensor, Tensor]:
    """Megatron's embedding of an id that no rank holds, and its loss for such a target."""
    with default_device(world), megatron(tensor=world.size):
        embedding = VocabParallelEmbedding(
            8, 4, init_method=torch.nn.init.ones_, config=config(hidden=4, heads=2)
        )
        embedded = embedding(torch.tensor([99])).detach()
        logits = torch.zeros(1, 1, 4, dtype=torch.float64)
        return embedded, vocab_parallel_cross_entropy(logits, torch.tensor([[99]]))


def test_an_id_outside_the_vocabulary_embeds_to_zero_without_a_word(pool: Any) -> None:
    for embedded, loss in pool(2).run(out_of_vocabulary):
        assert torch.all(embedded == 0), MENDED
        assert loss.item() == pytest.approx(torch.tensor(8.0).log().item()), MENDED


def frozen_weight(world: World) -> tuple[bool, bool]:
    """Whether a bias gets a gradient beside a frozen weight: Megatron's, ours."""
    trained = []
    with default_device(world), megatron(tensor=world.size):
        reference = ColumnParallelLinear(
            4, 4, config=config(hidden=4), init_method=torch.nn.init.ones_, bias=True,
            gather_output=False, skip_bias_add=False,
        )  # fmt: skip
        ours = linear.ColumnParallelLinear(
            4, 4, axis=world.whole, bias=True, init=Init(dtype=torch.float64, device=world.device)
        )
        layers: tuple[Any, Any] = (reference, ours)
        for layer in layers:
            layer.weight.requires_grad_(False)
            y = layer(torch.ones(1, 1, 4, dtype=torch.float64))
            (y if isinstance(y, Tensor) else y[0]).sum().backward()
            trained.append(layer.bias.grad is not None)
    return trained[0], trained[1]


def test_freezing_a_column_weight_freezes_its_bias_too(pool: Any) -> None:
    # LinearWithFrozenWeight returns None for the bias's gradient whatever it is asked for.
    for reference, ours in pool(2).run(frozen_weight):
        assert not reference, MENDED
        assert ours


def loss_of_logits(world: World, dtype: torch.dtype) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(loss, logits afterwards, logits before) for Megatron's and ours."""
    with default_device(world), megatron(tensor=world.size):
        logits = random_like(3, 1, 4, seed=world.rank, dtype=dtype)
        targets = torch.tensor([[0], [1], [5]])
        return [
            (loss(argument := logits.clone()), argument, logits)
            for loss in (
                lambda x: vocab_parallel_cross_entropy(x, targets),
                lambda x: cross_entropy(x, targets, axis=world.whole),
            )
        ]


def test_the_loss_overwrites_fp32_logits(pool: Any) -> None:
    # logits.float() is no copy where they are fp32 already, and what follows works in place.
    for (_, reference, before), (_, ours, _) in pool(2).run(loss_of_logits, torch.float32):
        assert not torch.equal(reference, before), MENDED
        assert torch.equal(ours, before)


def test_the_loss_is_cast_to_fp32(pool: Any) -> None:
    for (reference, _, _), (ours, _, _) in pool(2).run(loss_of_logits, torch.float64):
        assert reference.dtype == torch.float32, MENDED
        assert ours.dtype == torch.float64


def second_backward(world: World) -> str:
    """What Megatron's second backward raises; ours gives the gradient again."""
    with default_device(world):
        logits = random_like(3, 1, 4, seed=world.rank).requires_grad_()
        targets = torch.tensor([[0], [1], [5]])
    ours = cross_entropy(logits, targets, axis=world.whole).sum()
    first, second = (torch.autograd.grad(ours, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    with default_device(world), megatron(tensor=world.size):
        reference = vocab_parallel_cross_entropy(logits, targets).sum()
        reference.backward(retain_graph=True)
        try:
            reference.backward()
        except RuntimeError as error:
            return str(error)
    return ""


def test_the_loss_has_only_one_backward(pool: Any) -> None:
    # The saved softmax becomes the gradient in place.
    for error in pool(2).run(second_backward):
        assert "modified by an inplace operation" in error, MENDED


@pytest.mark.ci
def test_fusing_the_bias_into_the_gelu_changes_the_function() -> None:
    # The fused form is the tanh approximation, the plain one (torch's default) is exact.
    x = torch.linspace(-4, 4, 1001, dtype=torch.float64)
    exact = torch.nn.functional.gelu(x)
    assert (bias_gelu(torch.zeros(1, dtype=x.dtype), x) - exact).abs().max() > 1e-4, MENDED
