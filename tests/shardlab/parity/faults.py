"""Models with one planted fault each, for `python -m shardlab.parity`: what it must name.

Each function builds the Llama of own_llama.py, or shardlab's GPT, and breaks one thing. Its
SUPPORTS keep the search short. The first ten are kinds of faults that public threads report.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear
from torch.utils.checkpoint import checkpoint

from shardlab.context.parallel import ContextParallel
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers import ops
from shardlab.layers.cross_entropy import IGNORED, cross_entropy
from shardlab.layers.sharding import Sharding, mark, mark_copies
from shardlab.parity import preflight
from tests.shardlab import own_llama
from tests.shardlab.own_llama import HIDDEN, Llama, batch

SUPPORTS: dict[str, list[Any]] = {"tensor": [1, 2], "sequence_parallel": [False, True]}
TENSOR = {"tensor": [1, 2]}
DATA = {"data": [1, 2]}
PIPELINE = {"pipeline": [1, 2]}
__all__ = ["batch"]

Build = Callable[..., nn.Module]


def supports(values: dict[str, list[Any]], **attributes: Any) -> Callable[[Build], Build]:
    def mark(build: Build) -> Build:
        build.SUPPORTS = values  # type: ignore[attr-defined]
        for name, value in attributes.items():
            setattr(build, name, value)
        return build

    return mark


def train_unchecked(*of: Any) -> preflight.Reference:
    """Train in one process, without the look at each parameter's derivative: half of the time."""
    with patch.object(preflight, "_refuse_wrong_backward"):
        return preflight.train_alone(*of)


def llama(grid: Grid, **options: Any) -> Any:
    return Llama(grid, **options)


def fault(
    values: dict[str, list[Any]] | None = None, build: Any = llama, **attributes: Any
) -> Callable[[Callable[[Grid, Any], None]], Build]:
    """Build the model, and then let the decorated function break something in it."""

    def decorate(plant: Callable[[Grid, Any], None]) -> Build:
        def built(grid: Grid, **options: Any) -> nn.Module:
            model: nn.Module = build(grid, **options)
            plant(grid, model)
            return model

        return supports(values, **attributes)(built) if values else built

    return decorate


# ------------------------------------------------------------------ ten kinds of public threads


@fault(SUPPORTS)
def partial_norm(grid: Grid, model: Any) -> None:
    if model.partial:
        del model.layers["1"].norm2.weight.partial_gradient


@supports(PIPELINE | {"tied": [True]})
def tied_ends(grid: Grid, **options: Any) -> nn.Module:
    class Untold(Llama):
        tied_weight = None  # type: ignore[assignment]

    return Untold(grid, **options)


def text_alone(step: int) -> tuple[Tensor, Tensor]:
    (tokens, _), targets = batch(step)
    return tokens, targets


def gpt(grid: Grid, stage: int, stages: int, *, experts: bool = True, **kind: Any) -> GPT:
    layers = 2 if experts else 4  # four to interleave two stages of two pieces
    chosen, axes = (ExpertConfig(count=4, ffn=8), ExpertAxes.of(grid)) if experts else (None, None)
    config = GPTConfig(
        **LLAMA, layers=layers, hidden=HIDDEN, heads=4, kv_heads=2, ffn=16, vocab=21, sequence=8,
        dtype=torch.float64, init_std=0.2, experts=chosen,
    )  # fmt: skip
    context = ContextParallel(grid.context)
    stages_: dict[str, Any] = {"stage": stage, "stages": stages, "context": context}
    return GPT(config, tensor=grid.tensor, experts=axes, **stages_, **kind)


@supports(
    {
        "tensor": [1, 2], "context": [1, 2], "pipeline": [1, 2], "data": [1, 2],
        "microbatches": [1, 2], "schedule": ["1f1b", "gpipe", "zb-h1", "interleaved"],
        "fsdp": ["", "FULL_SHARD", "SHARD_GRAD_OP"], "sequence_parallel": [False, True],
    },
    batch=text_alone,
)  # fmt: skip
def dense(grid: Grid, **options: Any) -> nn.Module:
    return gpt(grid, experts=False, **options)


@supports(DATA | {"expert": [1, 2]}, batch=text_alone)
def experts(grid: Grid, **options: Any) -> nn.Module:
    return gpt(grid, **options)


@fault(DATA | {"expert": [1, 2]}, batch=text_alone, build=gpt)
def unmarked_experts(grid: Grid, model: Any) -> None:
    for parameter in model.parameters():
        parameter.__dict__.pop("copies_axis", None)


@fault(TENSOR)
def label_smoothing(grid: Grid, model: Any) -> None:
    def loss(logits_SBv: Tensor, targets_BS: Tensor) -> Tensor:
        words = logits_SBv[..., : model.head.words]
        right = cross_entropy(logits_SBv, targets_BS.t(), axis=grid.tensor).mean()
        return right - 0.1 * words.mean()

    model.loss = loss


@fault(TENSOR)
def dropout_under_recomputation(grid: Grid, model: Any) -> None:
    block = model.layers["0"]
    block.down.forward = recomputed(block.down.forward, preserve_rng_state=False)


def recomputed(forward: Any, **settings: Any) -> Any:
    def dropped(x: Tensor) -> Tensor:
        return forward(dropout(x, 0.3))

    return partial(checkpoint, dropped, use_reentrant=False, **settings)


@fault({"context": [1, 2]})
def wrong_positions(grid: Grid, model: Any) -> None:
    if context := model.context:
        for block in model.layers.values():
            runs = lambda tokens: torch.arange(tokens) + grid.context.rank * tokens  # noqa: E731
            block.context = SimpleNamespace(positions=runs, attend=context.attend)


@fault(SUPPORTS)
def rotated_by_own_rows(grid: Grid, model: Any) -> None:
    rows = lambda tokens: torch.arange(tokens) % (tokens // grid.tensor.size)  # noqa: E731
    for block in model.layers.values() if model.partial else ():
        block.context = SimpleNamespace(positions=rows, attend=ContextParallel(grid.context).attend)


def uneven(step: int) -> tuple[Any, Tensor]:
    tokens, targets = batch(step)
    targets = targets.clone()
    targets[:3, 2:] = IGNORED
    return tokens, targets


@fault(DATA, batch=uneven)
def mean_of_means(grid: Grid, model: Any) -> None:
    def loss(logits_SBv: Tensor, targets_BS: Tensor) -> Tensor:
        losses = cross_entropy(logits_SBv, targets_BS.t(), axis=grid.tensor)
        return losses.sum() / (targets_BS != IGNORED).sum()

    model.loss = loss


@fault(DATA | {"reduction": ["tokens"], "microbatches": [1, 2]}, batch=uneven)
def sums(grid: Grid, model: Any) -> None:
    model.loss = lambda x, y: cross_entropy(x, y.t(), axis=grid.tensor).sum()


@supports(TENSOR)
def frozen_lora(grid: Grid, **options: Any) -> nn.Module:
    model = llama(grid, **options).requires_grad_(False)
    block = model.layers["0"]
    block.lora_a = own_llama.INIT.replicated("lora_a", (4, HIDDEN))
    block.lora_b = own_llama.INIT.replicated("lora_b", (HIDDEN, 4))
    inner = block.forward

    def adapted(x: Tensor, documents: Any) -> Tensor:
        return inner(x, documents) + linear(linear(x, block.lora_a), block.lora_b)

    block.forward = partial(checkpoint, adapted, use_reentrant=True)
    return model


@fault(TENSOR)
def unmarked_weight(grid: Grid, model: Any) -> None:
    del model.layers["1"].q.weight.sharding


@fault(DATA)
def double_scaling(grid: Grid, model: Any) -> None:
    inner = model.loss
    model.loss = lambda x, y: inner(x, y) / grid.data.size


# ------------------------------------------------------------------ five more


@fault(TENSOR)
def bias_before_the_sum(grid: Grid, model: Any) -> None:
    down = model.layers["0"].down
    down.shift = nn.Parameter(torch.full((HIDDEN,), 0.5, dtype=torch.float64))
    down.forward = lambda x: ops.reduce_from(linear(x, down.weight) + down.shift, grid.tensor)


@fault(TENSOR)
def missing_f(grid: Grid, model: Any) -> None:
    model.head.forward = lambda x: linear(x, model.head.weight, model.head._padding())


@supports(PIPELINE)
def renumbered_stage(grid: Grid, stage: int, stages: int, **options: Any) -> nn.Module:
    model = llama(grid, stage=stage, stages=stages, **options)
    model.layers = nn.ModuleDict({str(i): b for i, b in enumerate(model.layers.values())})
    return model


@fault(TENSOR)
def summed_twice(grid: Grid, model: Any) -> None:
    model.norm.weight.register_hook(grid.tensor.all_reduce)


@fault(TENSOR)
def divided_twice(grid: Grid, model: Any) -> None:
    model.norm.weight.register_hook(lambda g: g / grid.tensor.size)


@fault(DATA | {"expert": [1, 2]}, batch=text_alone, build=gpt)
def expert_scaled(grid: Grid, model: Any) -> None:
    for parameter in model.layers["1"].mlp.experts.parameters():
        parameter.register_hook(lambda g: g * grid.expert.size)


@fault(TENSOR)
def negated_backward(grid: Grid, model: Any) -> None:
    model.norm.weight.register_hook(lambda g: g * torch.arange(len(g)).pow(grid.tensor.size - 1))


@fault(DATA | {"expert": [1, 2]}, batch=text_alone, build=gpt)
def marked_as_an_expert(grid: Grid, model: Any) -> None:
    mark_copies(model.final_norm.weight, ExpertAxes.of(grid).copies)


@fault(TENSOR)
def frozen_on_the_grid(grid: Grid, model: Any) -> None:
    model.norm.weight.requires_grad_(grid.tensor.size == 1)


@supports(PIPELINE)
def stages_in_another_order(grid: Grid, stage: int, stages: int, **options: Any) -> nn.Module:
    model = llama(grid, stage=stage, stages=stages, **options)
    if stages > 1 and len(model.layers) > 1:
        model.layers = nn.ModuleDict(reversed([*model.layers.items()]))
    return model


@supports(PIPELINE | {"tied": [True]})
def tied_copy_counted_twice(grid: Grid, **options: Any) -> nn.Module:
    class Both(Llama):
        @property
        def tied_weight(self) -> nn.Parameter | None:
            return self.embedding.weight if self.begins != self.last else None

        def forward(self, x: Tensor, documents_BS: Tensor) -> Any:
            self.first = self.begins
            output = super().forward(x, documents_BS)
            self.first = True
            return output

    model = Both(grid, **options)
    model.begins, model.first = model.first, True
    return model


@fault(TENSOR)
def later_steps_differ(grid: Grid, model: Any) -> None:
    seen = []
    inner = model.loss

    def loss(x: Tensor, y: Tensor) -> Tensor:
        seen.append(1)
        return inner(x, y) * (1 if grid.tensor.size == 1 else len(seen))

    model.loss = loss


@supports(TENSOR)
def raises_on_the_grid(grid: Grid, **options: Any) -> nn.Module:
    return {1: llama(grid, **options)}[grid.tensor.size]


@fault(TENSOR)
def named_otherwise(grid: Grid, model: Any) -> None:
    if grid.tensor.size > 1:
        model.extra = nn.Parameter(torch.zeros(3, dtype=torch.float64))


# ------------------------------------------------------------------ marks, and what ranks share


@fault(TENSOR)
def marked_and_whole(grid: Grid, model: Any) -> None:
    mark(model.norm.weight, Sharding(grid.tensor, 0, HIDDEN, HIDDEN))


@fault(TENSOR)
def marked_along_another_dim(grid: Grid, model: Any) -> None:
    mark(model.layers["0"].o.weight, Sharding(grid.tensor, 0, HIDDEN, HIDDEN))


@supports(PIPELINE | {"tied": [True]})
def tied_on_one_stage(grid: Grid, **options: Any) -> nn.Module:
    class OneStage(Llama):
        @property
        def tied_weight(self) -> nn.Parameter | None:
            return None if self.last else super().tied_weight

    return OneStage(grid, **options)


# ------------------------------------------------------------------ what can't be compared


@fault()
def remembers(grid: Grid, model: Any) -> None:
    seen = []
    inner = model.loss

    def loss(x: Tensor, y: Tensor) -> Tensor:
        seen.append(1)
        return inner(x, y) * (1 + len(seen) / 100)

    model.loss = loss


@fault()
def draws(grid: Grid, model: Any) -> None:
    block = model.layers["0"]
    block.down.forward = recomputed(block.down.forward)


@fault()
def returns_a_dict(grid: Grid, model: Any) -> None:
    inner = model.forward
    model.forward = lambda *x: {"logits": inner(*x)}


@fault()
def moves_a_buffer(grid: Grid, model: Any) -> None:
    model.register_buffer("mean", torch.zeros(1))
    inner = model.loss

    def loss(x: Tensor, y: Tensor) -> Tensor:
        model.mean += 1
        return inner(x, y)

    model.loss = loss


@fault(TENSOR)
def has_a_buffer(grid: Grid, model: Any) -> None:
    model.register_buffer("rates", torch.ones(1), persistent=False)


@fault()
def has_a_parameter_that_nothing_uses(grid: Grid, model: Any) -> None:
    model.unused = nn.Parameter(torch.zeros(3, dtype=torch.float64))


@supports({"data": [3]})
def three(grid: Grid, **options: Any) -> nn.Module:
    return llama(grid, **options)


def narrow(grid: Grid, **options: Any) -> nn.Module:
    return llama(grid, **options).float()


@fault()
def has_no_number_as_loss(grid: Grid, model: Any) -> None:
    inner = model.loss
    model.loss = lambda x, y: inner(x, y) * float("nan")


def trains_nothing(grid: Grid, **options: Any) -> nn.Module:
    return llama(grid, **options).requires_grad_(False)


@fault()
def has_many_losses(grid: Grid, model: Any) -> None:
    model.loss = lambda x, y: x


def has_no_loss(grid: Grid, **options: Any) -> nn.Module:
    class Silent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = llama(grid, **options)

        def forward(self, *x: Tensor) -> Any:
            return self.model(*x)

    return Silent()


built = []


@fault()
def builds_another_each_time(grid: Grid, model: Any) -> None:
    number = len(built)
    built.append(1)
    inner = model.loss
    model.loss = lambda x, y: inner(x, y) * (1 + number)


@supports(TENSOR, batch=lambda step: [*batch(step)])
def has_a_list_as_batch(grid: Grid, **options: Any) -> nn.Module:
    return llama(grid, **options)


@supports(PIPELINE)
def has_no_hidden_shape(grid: Grid, **options: Any) -> nn.Module:
    class Shapeless(Llama):
        @property
        def hidden_shape(self) -> Any:  # type: ignore[override]
            raise AttributeError

    return Shapeless(grid, **options)


def no_module(grid: Grid, **options: Any) -> Any:
    return {"model": llama(grid, **options)}
