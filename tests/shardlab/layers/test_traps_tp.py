"""The traps of tensor parallelism that the field has fallen into, each by name.

Every test here was seen to fail with the fault put into the code; the fault stands in its
docstring. The layers' own tests catch most of them too: these say which trap it was.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers import ops, partial_gradients
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.layers.embedding import VocabParallelHead
from shardlab.layers.init import Init
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear
from shardlab.layers.sharding import whole
from tests.shardlab.pool import on_ranks

S, B, H, F = 4, 2, 8, 12
EXACT = 1e-12


def init(world: World) -> Init:
    return Init(dtype=torch.float64, std=0.5, device=world.device)


def noise(world: World, *shape: int, key: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(key)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(world.device)


@on_ranks(2)
def test_an_input_used_twice_gets_both_gradients_and_keeps_its_values(world: World) -> None:
    """Fault: the row's all-reduce, or copy_to's backward, in place on what it was given.

    megatron-core 0.16.1 does the first in `_reduce` (core/tensor_parallel/mappings.py).
    """
    axis = world.whole
    column = ColumnParallelLinear(H, F, axis=axis, init=init(world))
    row = RowParallelLinear(F, H, axis=axis, init=init(world))
    calls: dict[str, tuple[Any, int]] = {
        "column": (column, H),
        "row": (row, F // axis.size),
        "copy_to": (lambda x: ops.copy_to(x, axis), H),
        "reduce_from": (lambda x: ops.reduce_from(x, axis), H),
    }
    for name, (call, width) in calls.items():
        x = noise(world, S, B, width).requires_grad_()
        before = x.detach().clone()
        g = noise(world, *call(x).shape, key=1)
        kept_g = g.clone()
        (once,) = torch.autograd.grad(call(x), x, g)
        (twice,) = torch.autograd.grad(call(x) + call(x), x, g)
        # x feeds the op and, unchanged, something else: a change in place would show there.
        (with_residual,) = torch.autograd.grad([call(x), x * 3], x, [g, torch.ones_like(x)])
        assert torch.equal(x.detach(), before), f"{name} changed its input"
        assert torch.equal(g, kept_g), f"{name} changed the incoming gradient"
        assert torch.allclose(twice, 2 * once, rtol=EXACT), name
        assert torch.allclose(with_residual, once + 3, rtol=EXACT), name


@on_ranks(2)
def test_a_gradient_that_is_not_contiguous_is_reduced(world: World) -> None:
    """Fault: the collective runs on a contiguous copy and the original is returned.

    megatron-core 0.16.1 does so in `_reduce`: `all_reduce(input_.contiguous())`, return `input_`.
    """
    axis = world.whole
    for sequence_parallel in (False, True):
        options: dict[str, Any] = {"axis": axis, "sequence_parallel": sequence_parallel}
        column = ColumnParallelLinear(H, F, init=init(world), **options)
        row = RowParallelLinear(F, H, init=init(world), **options)
        rows = S // axis.size if sequence_parallel else S
        for layer, shape in [(column, (rows, B, H)), (row, (S, B, F // axis.size))]:
            x = noise(world, *shape).requires_grad_()
            y: Tensor = layer(x)
            strided = noise(world, *reversed(y.shape), key=2).permute(2, 1, 0)
            assert not strided.is_contiguous()
            actual = torch.autograd.grad(y, (x, layer.weight), strided, retain_graph=True)
            expected = torch.autograd.grad(y, (x, layer.weight), strided.contiguous())
            for a, b in zip(actual, expected, strict=True):
                assert torch.equal(a, b)
    x = noise(world, S, H).requires_grad_()
    (grad,) = torch.autograd.grad(ops.copy_to(x, axis), x, noise(world, H, S).t())
    assert torch.allclose(grad, axis.size * noise(world, H, S).t(), rtol=EXACT)


@pytest.mark.parametrize("size", [1, 2, 4])
@on_ranks("size")
def test_row_bias_is_added_once_after_the_reduction(world: World) -> None:
    """Fault: `linear(x, weight, bias)`, then the all-reduce: the bias counts once for each rank."""
    axis = world.whole
    layer = RowParallelLinear(F, H, axis=axis, init=init(world))
    with torch.no_grad():
        layer.bias.fill_(1.0)  # type: ignore[union-attr]
    y: Tensor = layer(torch.zeros(S, B, F // axis.size, dtype=torch.float64, device=world.device))
    y.sum().backward()
    assert float(y.detach().max()), float(layer.bias.grad.max()) == (1.0, S * B)


def under_sequence_parallelism(world: World) -> list[str]:
    """Parameters that are replicated, whose gradients differ between ranks before `reduce`."""
    config = GPTConfig(layers=1, hidden=H, heads=4, vocab=12, sequence=S, dtype=torch.float64)
    model = GPT(config, tensor=world.whole, sequence_parallel=True, device=world.device)
    tokens = torch.arange(B * S, device=world.device).view(B, S) % 12
    model.loss(model(tokens), tokens.flip(1)).backward()
    replicated = {n: p for n, p in model.named_parameters() if not hasattr(p, "sharding")}
    partial = [n for n, p in replicated.items() if _differs(p.grad, world.whole)]
    marked = [n for n, p in replicated.items() if partial_gradients.is_marked(p)]
    assert partial == marked, "marked, but not partial; or partial, but not marked"
    partial_gradients.reduce(model, world.whole)
    assert not any(_differs(p.grad, world.whole) for p in replicated.values())
    return partial


def _differs(x: Tensor | None, axis: Axis) -> bool:
    assert x is not None
    every = axis.all_gather(x.unsqueeze(0))
    return not bool((every == every[0]).all())


def test_partial_gradients_under_sequence_parallelism_are_marked_and_finished(pool) -> None:
    """Fault: no mark on the norm, the row's bias or the positions."""
    assert pool(2).run(under_sequence_parallelism)[0] == [
        "position_embedding",
        "layers.0.norm1.weight",
        "layers.0.norm1.bias",
        "layers.0.attention.proj.bias",
        "layers.0.norm2.weight",
        "layers.0.norm2.bias",
        "layers.0.mlp.fc2.bias",
        "final_norm.weight",
        "final_norm.bias",
    ]


def dropped(world: World, sequence_parallel: bool) -> dict[str, Tensor]:
    """Which elements each dropout of the model drops, by its name in the model."""
    config = GPTConfig(layers=1, hidden=H, heads=4, vocab=12, sequence=S, dropout=0.5)
    model = GPT(
        config, tensor=world.whole, sequence_parallel=sequence_parallel, device=world.device
    )
    seen: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if "dropout" in name:
            module.register_forward_hook(
                lambda _, __, y, name=name: seen.update({name: (y == 0).cpu()})
            )
    model(torch.zeros(B, S, dtype=torch.long, device=world.device))
    attention: Any = model.get_submodule("layers.0.attention")
    blank = torch.zeros(1, attention.groups, S, S, device=world.device)
    eye = torch.eye(S, device=world.device).expand_as(blank)  # as values: the weights come out
    weights = attention._attend(blank, blank, eye, None)
    return seen | {"layers.0.attention.dropout": (weights == 0).cpu()}


@pytest.mark.parametrize("sequence_parallel", [False, True], ids=["whole", "sequence_parallel"])
def test_replicated_regions_share_dropout_and_sharded_ones_do_not(pool, sequence_parallel) -> None:
    """Faults: the rank in every key (or in none); `sharded` left out under sequence parallelism."""
    first, second = pool(2).run(dropped, sequence_parallel)
    alike = {name for name in first if torch.equal(first[name], second[name])}
    residual = {"embedding_dropout", "layers.0.dropout1", "layers.0.dropout2"}
    assert set(first) == residual | {"layers.0.attention.dropout"}
    assert alike == (set() if sequence_parallel else residual)


def two_stages(world: World) -> tuple[Tensor, Tensor, Tensor]:
    """The tied weight's gradient on the first stage, on the last, and in the undivided model."""
    config = GPTConfig(layers=2, hidden=H, heads=4, vocab=13, sequence=S, dtype=torch.float64)
    tokens = torch.arange(B * S, device=world.device).view(B, S) % 13
    whole_model = GPT(config, tensor=world.whole, device=world.device)
    whole_model.loss(whole_model(tokens), tokens.flip(1)).backward()
    first, last = (
        GPT(config, tensor=world.whole, stage=i, stages=2, device=world.device) for i in (0, 1)
    )
    assert whole_model.tied_weight is None
    assert first.tied_weight is not None
    assert last.tied_weight is not None
    assert torch.equal(first.tied_weight, last.tied_weight), "the copies start differently"
    last.loss(last(first(tokens)), tokens.flip(1)).backward()
    weights = (first.tied_weight, last.tied_weight, whole_model.word_embedding.weight)
    a, b, expected = (whole(weight, weight.grad).cpu() for weight in weights)
    return a, b, expected


def test_a_tied_embedding_across_stages_needs_the_sum_of_both_gradients(pool) -> None:
    """Faults: the last stage draws a weight of its own; or only one stage's gradient counts."""
    for first, last, expected in pool(2).run(two_stages):
        assert torch.allclose(first + last, expected, rtol=EXACT, atol=1e-15)
        for gradient in (first, last):
            assert not torch.allclose(gradient, expected, rtol=0.1)


@pytest.mark.parametrize("size", [2, 4, 8])
@on_ranks("size")
def test_a_vocabulary_that_does_not_divide_is_padded_and_the_padding_counts_for_nothing(
    world: World,
) -> None:
    """Fault: padding's logits stay at 0 instead of the smallest number: they win every softmax."""
    axis, vocab = world.whole, 5  # on 4 ranks: 2 words, 2 words, 1 and padding, only padding
    layer = VocabParallelHead(vocab, H, axis=axis, init=init(world))
    x = -100 * whole(layer.weight).sum(0).expand(S, B, H)  # every word's logit below 0
    logits = layer(x.contiguous())
    targets = torch.arange(S * B, device=world.device).view(S, B) % vocab
    loss = cross_entropy(logits, targets, axis=axis)
    every = torch.nn.functional.linear(x, whole(layer.weight)).flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(every, targets.flatten(), reduction="none")
    assert torch.allclose(loss.flatten(), expected, rtol=EXACT)
    loss.sum().backward()
    length = layer.weight.shape[0]
    words = min(max(vocab - axis.rank * length, 0), length)
    assert not layer.weight.grad[words:].any()  # type: ignore[index]


def test_no_test_draws_its_cases_from_the_gpus_that_are_there() -> None:
    """Fault: `parametrize("size", range(1, torch.cuda.device_count()))`: no case on a CPU."""
    for path in sorted(Path(__file__).parents[1].rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and _is_parametrize(node.func)):
                continue
            cases = ast.unparse(node)
            assert "device_count" not in cases, f"{path.name}:{node.lineno}"
            assert "cuda.is_available" not in cases, f"{path.name}:{node.lineno}"


def _is_parametrize(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "parametrize"
