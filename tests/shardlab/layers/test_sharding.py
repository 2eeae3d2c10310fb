"""Whole tensors and slices: there and back, alike on every axis, refused where they do not fit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import Axis, World
from shardlab.data_parallel.gradient_norm import gradient_norm
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers import partial_gradients
from shardlab.layers.init import Init, keyed_normal
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear
from shardlab.layers.sharding import Sharding, load_whole, sharding_of, whole, whole_parameters
from tests.shardlab.pool import on_ranks

CONFIG = GPTConfig(layers=2, hidden=16, heads=8, vocab=13, sequence=8)


def initial(world: World, stages: int) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for stage in range(stages):
        model = GPT(CONFIG, tensor=world.whole, stage=stage, stages=stages, device=world.device)
        state |= whole_parameters(model)
    return {name: tensor.cpu() for name, tensor in state.items()}


def test_every_axis_and_every_pipeline_starts_from_the_same_model(pool) -> None:
    expected = whole_parameters(GPT(CONFIG, tensor=Axis.alone()))
    assert expected["word_embedding.weight"].shape == (13, 16)
    for size, stages in [(1, 2), (2, 1), (4, 2), (8, 1)]:
        for actual in pool(size).run(initial, stages):
            assert actual.keys() == expected.keys()
            assert [n for n in expected if not torch.equal(actual[n], expected[n])] == []


def test_a_draw_depends_on_name_and_seed_and_on_nothing_else() -> None:
    first = keyed_normal("a", (3, 4), seed=0, std=2.0, dtype=torch.float64)
    torch.manual_seed(5)
    assert torch.equal(first, keyed_normal("a", (3, 4), seed=0, std=2.0, dtype=torch.float64))
    assert torch.equal(
        first.bfloat16(), keyed_normal("a", (3, 4), seed=0, std=2.0, dtype=torch.bfloat16)
    )
    for name, seed in [("b", 0), ("a", 1)]:
        assert not torch.equal(
            first, keyed_normal(name, (3, 4), seed=seed, std=2.0, dtype=torch.float64)
        )
    many = keyed_normal("a", (100, 100), seed=0, std=2.0)
    assert float(many.std()) == pytest.approx(2.0, rel=0.02)
    assert float(many.mean()) == pytest.approx(0.0, abs=0.1)


def test_what_is_added_to_the_residual_starts_smaller_with_depth() -> None:
    deep = GPTConfig(layers=8, hidden=64, heads=8, vocab=1, sequence=1)
    block = GPT(deep, tensor=Axis.alone()).layers["7"]
    for layer in (block.attention.proj, block.mlp.fc2):
        assert float(layer.weight.detach().std()) == pytest.approx(0.02 / 4, rel=0.05)
    for layer in (block.attention.qkv, block.mlp.fc1):
        assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("size", [1, 2, 4])
@on_ranks("size")
def test_a_whole_tensor_goes_to_slices_and_comes_back(world: World) -> None:
    axis = world.whole
    x = torch.arange(5 * 8 * 2.0, device=world.device).view(5, 8, 2)
    for dim, size, padded in [(1, 8, 8), (-2, 8, 8), (0, 5, 8)]:
        sharding = Sharding(axis, dim, size, padded)
        local = sharding.local(x)
        assert local.shape[dim] == padded // axis.size
        assert local.is_contiguous()
        assert torch.equal(sharding.whole(local), x)
    Sharding(axis, 1, 8, 8).local(x).zero_()
    assert x[0, 0, 1] == 1, "the slice shares the whole tensor's storage"


@on_ranks(2)
def test_a_state_that_does_not_fit_is_refused_by_name(world: World) -> None:
    layer = ColumnParallelLinear(4, 8, axis=world.whole, init=Init(device=world.device))
    state = {name: tensor.clone() for name, tensor in whole_parameters(layer).items()}
    with pytest.raises(KeyError, match="the state has no weight; it has bias"):
        load_whole(layer, {"bias": state["bias"]})
    with pytest.raises(ValueError, match=r"length 8 along dim 0, found shape \(4, 4\)"):
        load_whole(layer, state | {"weight": layer.weight})
    with pytest.raises(ValueError, match=r"weight: expected a slice of shape \(4, 4\), found"):
        load_whole(layer, state | {"weight": state["weight"][:, :3]})
    assert sharding_of(layer.weight) == Sharding(world.whole, 0, 8, 8)
    assert sharding_of(torch.zeros(1)) is None
    moment = whole(layer.weight, torch.full_like(layer.weight, world.rank))
    assert moment.unique().tolist() == [0.0, 1.0]


@on_ranks(2)
def test_a_copy_of_a_model_is_cut_and_trains_as_the_model_does(world: World) -> None:
    """What a deep copy of a model does differently from the model; it is trained alone."""
    model = GPT(
        GPTConfig(layers=1, hidden=8, heads=2, vocab=9, sequence=4, dtype=torch.float64),
        tensor=world.whole, sequence_parallel=True, device=world.device,
    )  # fmt: skip
    before = whole_parameters(model)
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.word_embedding.weight, "tied as the model's is"
    tokens = torch.arange(8, device=world.device).view(2, 4)
    norms = []
    for each in (model, twin):
        each.loss(each(tokens), tokens).backward()
        partial_gradients.reduce(each, world.whole)
        norms.append(gradient_norm(each.parameters(), world.whole, tensor=world.whole))
    assert norms[0] == norms[1]
    torch.optim.SGD(twin.parameters(), lr=1.0).step()
    after, same = whole_parameters(twin), whole_parameters(model)
    gradients = {n: whole(p, p.grad) for n, p in model.named_parameters()}
    wrong = [n for n in before if not torch.equal(after[n], before[n] - gradients[n])]
    assert wrong + [n for n in before if not torch.equal(same[n], before[n])] == []


def test_a_copy_of_a_layer_alone_keeps_its_marks() -> None:
    layer = RowParallelLinear(4, 4, axis=Axis.alone(), sequence_parallel=True)
    twin = copy.deepcopy(nn.Sequential(layer))[0]
    assert sharding_of(twin.weight) == sharding_of(layer.weight)
    assert partial_gradients.is_marked(twin.bias)
    assert not partial_gradients.is_marked(twin.weight)
