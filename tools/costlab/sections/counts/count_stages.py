"""Megatron's pipelines counted: 1F1B as it ran, what stages send, and what would shrink its bubble.

Dimensions: S sequence, B batch, H hidden.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from costlab.implementations import megatron as core
from costlab.implementations import tutor
from costlab.implementations.megatron.gpt import MegatronStage, causal_mask, step, transformer_layer
from costlab.record.result import Metric
from costlab.sections.counts.count_pipeline import (
    CHUNKS,
    MANY,
    STAGES,
    WHERE,
    B,
    H,
    Noting,
    S,
    idle,
    ran,
)
from costlab.sections.metrics import counted
from shardlab.comm import Axis, World
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.ledger import Ledger
from shardlab.proofs.schedules.timeline import simulate


def scheduler(world: World) -> Iterator[Metric]:
    """Bubble and live micro-batches of Megatron's 1F1B; a stage a rank."""
    with core.megatron(pipeline=world.size):
        yield from ran(world, "megatron-1f1b", _one_f_one_b)


def messages(world: World) -> Iterator[Metric]:
    """What two stages of two tensor ranks send each other, beside what the tensor ranks reduce."""
    with core.megatron(tensor=2, pipeline=world.size // 2):
        for name, cut in (("tp-pp", False), ("tp-sp-pp", True)):
            ledger = _grid_step(cut)
            op = "reduce_scatter" if cut else "all_reduce"
            for what, kind in (("message", "send"), (op, op)):
                sent = ledger.total(kind)
                yield counted(f"{name}-megatron.{what}", sent.payload / sent.count, "B")


def beside_1f1b(world: World) -> Iterator[Metric]:
    """What a layer of the tutor's size costs, in halves; and interleaved 1F1B's messages."""
    with core.megatron(pipeline=STAGES):
        forward, inputs, weights = _costs()
        plain = _sent(1)
    once, split = (by_name(kind, STAGES, MANY) for kind in ("1f1b", "zb-h1"))
    idle_left = idle(simulate(split, forward=forward, backward=inputs, weight=weights))
    before = idle(simulate(once, forward=forward, backward=inputs + weights))
    yield counted("zb-h1.layer-megatron.idle-of-1f1b", idle_left / before, "ratio",
                  forward=forward, inputs=inputs, weights=weights)  # fmt: skip
    with core.megatron(pipeline=STAGES, virtual_pipeline_model_parallel_size=CHUNKS):
        dealt = _sent(CHUNKS)
    sent = world.whole.all_gather(torch.tensor([[plain, dealt]])).double()
    for name, of in (("all-stages", sent.sum(0)), ("inner-stage", sent[1])):
        times = float(of[1] / of[0])
        yield counted(f"interleaved-megatron.{WHERE}.{name}.messages-of-1f1b", times, "ratio")


def _one_f_one_b(axis: Axis, stage: Noting, microbatches: int) -> None:
    config = core.config(hidden=H, heads=4, depth=axis.size, dtype=torch.float32)
    config.deallocate_pipeline_outputs = True  # as its training script sets it
    x = torch.ones(S, B, H)
    step([MegatronStage(stage, config)], [(x, x)] * microbatches, _loss, S, B)


def _loss(y: Tensor, _: Tensor) -> Tensor:
    return y.square().mean()


class _Layer(nn.Module):
    """A layer as a stage, which knows its own mask."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x, attention_mask=causal_mask(S))[0]
        return out


def _grid_step(cut: bool) -> Ledger:
    """Count a step of a Megatron layer a stage, cut over the tensor axis."""
    config = core.config(hidden=H, heads=4, depth=2, dtype=torch.float32, sequence_parallel=cut)
    stage = MegatronStage(_Layer(transformer_layer(config)), config)
    x = torch.ones(S // 2 if cut else S, B, H)
    ledger = Ledger()
    with ledger:
        step([stage], [(x, x)] * 2, _loss, S, B)
    return ledger


def _costs() -> tuple[int, int, int]:
    """Return a layer's operations: forward, of its inputs' gradients, of its weights'."""
    config = core.config(hidden=tutor.HIDDEN, heads=4, dtype=torch.float32)
    layer = transformer_layer(config)
    x = torch.ones(tutor.SEQUENCE, 1, tutor.HIDDEN, requires_grad=True)
    backward = []
    for trained in (True, False):
        layer.requires_grad_(trained)
        with FlopCounterMode(display=False) as flops:
            y = layer(x, attention_mask=causal_mask(tutor.SEQUENCE))[0]
            forward = flops.get_total_flops()
            y.sum().backward()
        backward.append(flops.get_total_flops() - forward)
    both, inputs = backward
    return forward, inputs, both - inputs


def _sent(chunks: int) -> int:
    """Return how many messages this stage sends in a step of Megatron's 1F1B."""
    several = {"virtual_pipeline_model_parallel_size": chunks} if chunks > 1 else {}
    config = core.config(hidden=H, depth=STAGES * chunks, dtype=torch.float32, **several)
    x = torch.ones(S, B, H)
    pieces = [MegatronStage(nn.Linear(H, H), config, piece) for piece in range(chunks)]
    ledger = Ledger()
    with ledger:
        step(pieces, [(x, x)] * MANY, _loss, S, B)
    return ledger.total("send").count
