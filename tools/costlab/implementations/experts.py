"""One training step of a layer of experts over two or more ranks: ours, and megatron-core's.

A step is forward, a squared distance as loss, backward and SGD, from the same weights in fp32, on
the tutor's number of tokens; eight experts, two for each token, dealt out over all ranks. Gradients
of the router are each rank's own on both sides: what is compared is the layer.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from costlab.implementations import tutor
from costlab.implementations.rounds import Step
from shardlab.comm import Axis, World
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes, ExpertLayer
from shardlab.gpt.config import GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.init import Init

BASE = "megatron-core"
OURS = "ours over gloo"
EXPERTS, TOP_K, RATE = 8, 2, 1e-3


@contextmanager
def build(world: World, *, hidden: int, dispatch: str) -> Iterator[Mapping[str, Step]]:
    """Both at one size with one dispatcher, on every rank."""
    from costlab.implementations.megatron import moe_layer as moe  # which takes seconds

    experts = ExpertConfig(count=EXPERTS, top_k=TOP_K, dispatch=dispatch)
    config = GPTConfig(
        layers=1, hidden=hidden, heads=4, vocab=8, sequence=tutor.SEQUENCE, bias=False,
        experts=experts,
    )  # fmt: skip
    grid = Grid(world=world, expert=world.size, links={"expert_tensor-expert": "torch"})
    layer = ExpertLayer(
        config, "experts", axis=Axis.alone(), axes=ExpertAxes.of(grid),
        init=Init(std=hidden**-0.5, device=world.device),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(world.rank)
    shape = (tutor.SEQUENCE, tutor.BATCH, hidden)
    x, target = (torch.randn(shape, generator=generator).to(world.device) for _ in range(2))
    with ExitStack() as stack:
        with world.device:  # while it is set up; a step under it would be slower
            stack.enter_context(moe.megatron(expert_model_parallel_size=world.size))
            settings = moe.config(
                hidden=hidden, experts=EXPERTS, top_k=TOP_K, ffn=config.ffn_width,
                expert=world.size, dispatch=dispatch, dtype=torch.float32, add_bias_linear=False,
                moe_router_load_balancing_type="none", moe_router_dtype="fp32",
            )  # fmt: skip
            megatron_layer = moe.layer(settings)
            first = world.rank * EXPERTS // world.size
            moe.copy(dict(layer.named_parameters()), megatron_layer, first)
        yield {BASE: _step(megatron_layer, x, target), OURS: _step(layer, x, target)}


def _step(layer: nn.Module, x: Tensor, target: Tensor) -> Step:
    optimizer = torch.optim.SGD(layer.parameters(), lr=RATE)
    x = x.clone().requires_grad_()

    def step() -> float:
        optimizer.zero_grad()
        x.grad = None
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        loss = (y - target).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss)

    return step
