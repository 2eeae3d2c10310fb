"""Our layers beside megatron-core's, from the same weights, in fp64, on real processes.

A wrong slice or a missing reduction shows in the output or the input's gradient; a bias added on
every rank, or reduced twice, in the bias; a gradient that is only partial where Megatron's is
whole, in the parameters after some optimizer steps.

Dimensions: S sequence, B batch, H input features, F output features; lower case where sharded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardlab import linear, partial_gradients
from shardlab.block import Block
from shardlab.comm import World
from shardlab.config import GPTConfig
from shardlab.cross_entropy import cross_entropy
from shardlab.embedding import VocabParallelEmbedding
from shardlab.init import Init
from tests.shardlab import megatron as mcore
from tests.shardlab.difference import demand_alike, difference, differences, random_like

S, B, H, F = 8, 2, 16, 24
STEPS = 10
FP64 = Init(dtype=torch.float64)
Call = Callable[[Tensor], Tensor]


def trained(
    world: World, layer: nn.Module, call: Call, x: Tensor, target: Tensor
) -> dict[str, Tensor]:
    """First output and gradients, and the parameters after ten steps of SGD towards `target`."""
    seen: dict[str, Tensor] = {}
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3, momentum=0.9)
    frozen = not any(parameter.requires_grad for parameter in layer.parameters())
    for step in range(1 if frozen else STEPS):
        x = x.detach().requires_grad_(x.is_floating_point())
        optimizer.zero_grad()
        y = call(x)
        ((y - target) ** 2).sum().div(S * B).backward()  # a sum: alike however y is cut
        finish(world, layer)
        if step == 0:
            seen = {"output": y.detach()} | {
                f"gradient of {name}": p.grad.clone()
                for name, p in [("the input", x), *layer.named_parameters()]
                if p.grad is not None
            }
        optimizer.step()
    return seen | {name: p.detach() for name, p in layer.named_parameters()}


def finish(world: World, layer: nn.Module) -> None:
    """Sum what sequence parallelism leaves partial, in each library's own way of marking it."""
    partial_gradients.reduce(layer, world.whole)
    for parameter in layer.parameters():
        if getattr(parameter, "sequence_parallel", False) and parameter.grad is not None:
            world.whole.all_reduce(parameter.grad, out=parameter.grad)


def part(world: World, whole: Tensor, dim: int) -> Tensor:
    return whole.chunk(world.size, dim)[world.rank].contiguous()


def copied(ours: nn.Module, theirs: nn.Module, names: dict[str, str]) -> None:
    """Give both the same values; `names` maps our parameters' names to Megatron's.

    Ours are drawn here, on this rank alone for a sharded one: equal, then, only if cut alike.
    """
    with torch.no_grad():
        for seed, (name, parameter) in enumerate(ours.named_parameters()):
            parameter.copy_(random_like(*parameter.shape, seed=seed) / parameter.shape[-1] ** 0.5)
            theirs.get_parameter(names[name]).copy_(parameter)


# ------------------------------------------------------------------------------------ linear layers


def column(world: World) -> dict[str, dict[str, float]]:
    found = {}
    with mcore.megatron(tensor=world.size):
        for bias, gather, skip, sequence, frozen in product([False, True], repeat=5):
            if (sequence and (gather or world.size == 1)) or (skip and not bias):
                continue
            config = mcore.config(hidden=H, sequence_parallel=sequence)
            ours = linear.ColumnParallelLinear(
                H, F, axis=world.whole, bias=bias, gather_output=gather, skip_bias_add=skip,
                sequence_parallel=sequence, init=FP64,
            )  # fmt: skip
            theirs = mcore.ColumnParallelLinear(
                H, F, config=config, init_method=nn.init.ones_, bias=bias, gather_output=gather,
                skip_bias_add=skip,
            )  # fmt: skip
            x = random_like(S, B, H, seed=1)
            x = part(world, x, 0) if sequence else x
            target = random_like(S, B, F, seed=2)
            target = target if gather else part(world, target, -1)
            case = f"{bias=} {gather=} {skip=} {sequence=} {frozen=}"
            found[case] = compared(world, ours, theirs, x, target, skip and not gather, frozen)
    return found


def row(world: World) -> dict[str, dict[str, float]]:
    found = {}
    with mcore.megatron(tensor=world.size):
        for bias, parallel, skip, sequence, frozen in product([False, True], repeat=5):
            if (sequence and (not parallel or world.size == 1)) or (skip and not bias):
                continue
            config = mcore.config(hidden=H, sequence_parallel=sequence)
            ours = linear.RowParallelLinear(
                H, F, axis=world.whole, bias=bias, input_is_parallel=parallel, skip_bias_add=skip,
                sequence_parallel=sequence, init=FP64,
            )  # fmt: skip
            theirs = mcore.RowParallelLinear(
                H, F, config=config, init_method=nn.init.ones_, bias=bias,
                input_is_parallel=parallel, skip_bias_add=skip,
            )  # fmt: skip
            x = random_like(S, B, H, seed=1)
            x = part(world, x, -1) if parallel else x
            target = random_like(S, B, F, seed=2)
            target = part(world, target, 0) if sequence else target
            case = f"{bias=} {parallel=} {skip=} {sequence=} {frozen=}"
            found[case] = compared(world, ours, theirs, x, target, skip, frozen)
    return found


def compared(
    world: World, ours: Any, theirs: Any, x: Tensor, target: Tensor, add_bias: bool, frozen: bool
) -> dict[str, float]:
    """`add_bias`: whoever calls adds the bias that the layer left out."""
    copied(ours, theirs, {name: name for name, _ in ours.named_parameters()})
    for layer in (ours, theirs):
        for parameter in layer.parameters():  # Megatron's column layer never freezes one alone
            parameter.requires_grad_(not frozen)

    def our_call(x: Tensor) -> Tensor:
        y: Tensor = ours(x)
        return y + ours.bias if add_bias and ours.bias is not None else y

    def their_call(x: Tensor) -> Tensor:
        y: Tensor
        y, bias = theirs(x)
        return y + bias if add_bias and bias is not None else y

    return differences(
        trained(world, ours, our_call, x, target), trained(world, theirs, their_call, x, target)
    )


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("layer", [column, row])
def test_a_linear_layer_equals_megatrons(
    pool: Any, layer: Callable[[World], dict[str, dict[str, float]]], size: int
) -> None:
    demand_alike(pool(size).run(layer))


def accumulated(world: World) -> dict[str, dict[str, float]]:
    """Integers in fp32, so that sums are exact and equality is of bits: the kernel wants fp32."""
    found = {}
    with mcore.megatron(tensor=world.size):
        for kind, sequence in product(["column", "row"], [False, True]):
            config = mcore.config(
                hidden=H, sequence_parallel=sequence, gradient_accumulation_fusion=True,
                dtype=torch.float32,
            )  # fmt: skip
            settings: dict[str, Any] = {"axis": world.whole, "sequence_parallel": sequence}
            theirs: dict[str, Any] = {
                "config": config, "init_method": nn.init.ones_, "skip_bias_add": False, "bias": True
            }  # fmt: skip
            integers = random_like(S, B, H, seed=1).mul(3).round().float()
            if kind == "column":
                pair = (
                    linear.ColumnParallelLinear(H, F, gradient_accumulation=True, **settings),
                    mcore.ColumnParallelLinear(H, F, gather_output=False, **theirs),
                )
                x = part(world, integers, 0) if sequence else integers
            else:
                pair = (
                    linear.RowParallelLinear(H, F, gradient_accumulation=True, **settings),
                    mcore.RowParallelLinear(H, F, input_is_parallel=True, **theirs),
                )
                x = part(world, integers, -1)
            found[f"{kind} {sequence=}"] = differences(*(into_main_grad(each, x) for each in pair))
    return found


def into_main_grad(layer: Any, x: Tensor) -> dict[str, Tensor]:
    """Two micro-batches into a `main_grad` that already holds ones."""
    layer.weight.main_grad = torch.ones_like(layer.weight)
    x = x.detach().requires_grad_()
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(1.0)
    for scale in (1.0, 3.0):
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        y.backward(torch.arange(y.numel(), dtype=y.dtype).view_as(y) % 7 * scale)
    assert layer.weight.grad is None
    assert x.grad is not None
    return {"main_grad": layer.weight.main_grad, "input": x.grad, "bias": layer.bias.grad}


def test_the_weights_gradient_is_added_into_main_grad_as_megatrons(pool: Any) -> None:
    demand_alike(pool(2).run(accumulated), tolerance=0.0)


# ------------------------------------------------------------------------- embedding, loss, a block


def embedding(world: World) -> dict[str, dict[str, float]]:
    found = {}
    vocab = 3 * world.size
    tokens_BS = torch.randint(vocab, (B, S), generator=torch.Generator().manual_seed(0))
    with mcore.megatron(tensor=world.size):
        for sequence in [False, True][: world.size]:
            ours = VocabParallelEmbedding(
                vocab, H, axis=world.whole, sequence_parallel=sequence, init=FP64
            )
            theirs = mcore.VocabParallelEmbedding(
                vocab, H, init_method=nn.init.ones_, reduce_scatter_embeddings=sequence,
                config=mcore.config(hidden=H, sequence_parallel=sequence),
            )  # fmt: skip
            copied(ours, theirs, {"weight": "weight"})
            target = random_like(S, B, H, seed=2)
            target = part(world, target, 0) if sequence else target

            # Megatron turns [B, S] to [S, B] only where it scatters, by itself.
            def call(tokens: Tensor, layer: Any = theirs, turned: bool = not sequence) -> Tensor:
                y: Tensor = layer(tokens)
                return y.transpose(0, 1) if turned else y

            found[f"{sequence=}"] = differences(
                trained(world, ours, ours, tokens_BS.t(), target),
                trained(world, theirs, call, tokens_BS, target),
            )
    return found


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_embedding_equals_megatrons(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(embedding))


def losses(world: World) -> dict[str, dict[str, float]]:
    """Megatron's loss in fp32, against ours in fp32 and fp64."""
    found = {}
    v = 5
    targets = torch.randint(v * world.size, (S, B), generator=torch.Generator().manual_seed(0))
    weight = random_like(S, B, seed=1).float()
    logits = part(world, random_like(S, B, v * world.size, seed=2).mul(3), -1)

    def seen(call: Callable[[Tensor], Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
        x = logits.to(dtype).requires_grad_()
        loss = call(x * 1.0)  # Megatron writes over fp32 logits; a leaf would refuse that
        (loss * weight).sum().backward()
        assert x.grad is not None
        return {"loss": loss.detach().float(), "gradient": x.grad.float()}

    with mcore.megatron(tensor=world.size):
        theirs = seen(lambda x: mcore.vocab_parallel_cross_entropy(x, targets), torch.float32)
    for dtype in (torch.float32, torch.float64):
        ours = seen(lambda x: cross_entropy(x, targets, axis=world.whole), dtype)
        found[str(dtype)] = differences(ours, theirs)
    return found


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_loss_equals_megatrons_within_its_fp32(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(losses), tolerance=1e-6)


BLOCK = {
    "norm1": "input_layernorm",
    "attention.qkv": "self_attention.linear_qkv",
    "attention.proj": "self_attention.linear_proj",
    "norm2": "pre_mlp_layernorm",
    "mlp.fc1": "mlp.linear_fc1",
    "mlp.fc2": "mlp.linear_fc2",
}


def blocks(world: World) -> Iterator[tuple[str, Block, nn.Module]]:
    """(case, ours, theirs); Megatron's parallel state must stand."""
    heads = 8
    for groups, sequence, bias in product([8, 4, 2], [False, True], [True, False]):
        if groups % world.size or (sequence and world.size == 1):
            continue
        config = mcore.config(
            hidden=H, heads=heads, num_query_groups=groups, sequence_parallel=sequence,
            add_bias_linear=bias,
        )  # fmt: skip
        ours = Block(
            GPTConfig(
                layers=1, hidden=H, heads=heads, kv_heads=groups, vocab=8, sequence=S, bias=bias
            ),
            "layers.0", axis=world.whole, sequence_parallel=sequence, init=FP64,
        )  # fmt: skip
        theirs = mcore.transformer_layer(config)
        names = {
            name: name.replace(prefix, theirs_prefix)
            for name, _ in ours.named_parameters()
            for prefix, theirs_prefix in BLOCK.items()
            if name.startswith(prefix)
        }
        copied(ours, theirs, names)
        yield f"{groups=} {sequence=} {bias=}", ours, theirs


def block(world: World) -> dict[str, dict[str, float]]:
    found = {}
    mask = mcore.causal_mask(S)
    with mcore.megatron(tensor=world.size):
        for case, ours, theirs in blocks(world):
            x, target = random_like(S, B, H, seed=101), random_like(S, B, H, seed=102)
            if "sequence=True" in case:
                x, target = part(world, x, 0), part(world, target, 0)

            def call(x: Tensor, layer: Any = theirs) -> Tensor:
                y: Tensor = layer(x, attention_mask=mask)[0]
                return y

            expected = trained(world, theirs, call, x, target)
            for prefix, their_prefix in BLOCK.items():
                expected = {k.replace(their_prefix, prefix): v for k, v in expected.items()}
            found[case] = differences(trained(world, ours, ours, x, target), expected)
    return found


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_block_equals_megatrons_transformer_layer(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(block))


def test_a_difference_is_seen() -> None:
    x = random_like(3, 3, seed=0)
    assert difference(x, x * (1 + 1e-11)) > 1e-12
    assert difference(x, x.float()) == float("inf")
    with pytest.raises(AssertionError, match="rank 0, a: b differs by nan"):
        demand_alike([{"a": {"b": float("nan")}}])
