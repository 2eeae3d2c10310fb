"""Real schedulers' pipelines, counted as they ran: PyTorch's GPipe and 1F1B, and Megatron's 1F1B.

Each stage notes its computes in the order in which the scheduler ran them, and how many
micro-batches' graphs were alive at once. The order is then played against a clock with equal
stages, so that no machine changes the bubble.

Dimensions: S sequence, B batch, H hidden.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from costlab.record.result import Metric
from costlab.sections.counts.counted import counted
from shardlab.comm import Axis, World
from shardlab.pipeline.action import Backward, Compute, Forward
from shardlab.proofs.ledger import Ledger
from shardlab.proofs.schedules.timeline import bubble, simulate

S, B, H = 8, 2, 16
MICROBATCHES = (4, 8)  # PyTorch refuses 1F1B with fewer than there are stages
Run = Callable[[Axis, "Noting", int], None]


def schedulers(world: World) -> Iterator[Metric | str]:
    """Bubble and live micro-batches of each scheduler; a stage a rank."""
    runs: dict[str, Run] = {
        "torch-gpipe": _torch(ScheduleGPipe),
        "torch-1f1b": _torch(Schedule1F1B),
    }
    try:
        from costlab.contestants import megatron as core
    except ImportError as fault:
        yield f"left out: {fault}"
        yield from _ran(world, runs)
        return
    with core.megatron(pipeline=world.size):
        yield from _ran(world, runs | {"megatron-1f1b": _megatron})


def messages(world: World) -> Iterator[Metric]:
    """What two stages of two tensor ranks send each other, beside what the tensor ranks reduce."""
    try:
        from costlab.contestants import megatron as core
    except ImportError:
        return
    with core.megatron(tensor=2, pipeline=world.size // 2):
        for name, cut in (("tp-pp", False), ("tp-sp-pp", True)):
            ledger = _grid_step(cut)
            sent = ledger.total("send")
            yield counted(f"{name}-megatron.message", sent.payload / sent.count, "B")
            op = "reduce_scatter" if cut else "all_reduce"
            reduced = ledger.total(op)
            yield counted(f"{name}-megatron.{op}", reduced.payload / reduced.count, "B")


class Noting(nn.Module):
    """A linear stage that notes its forwards and backwards, and how many graphs live at once.

    Attributes:
        order: of its computes.
        live: the most micro-batches whose backward was still to come when one began.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(H, H)
        self.forget()

    def forget(self) -> None:
        """Begin a step."""
        self.order: list[Compute] = []
        self.live = 0
        self._alive: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def forward(self, x: Tensor) -> Tensor:
        """Multiply, noted forward and backward."""
        out: Tensor = self.linear(x)
        saved = _Saved(sum(isinstance(action, Forward) for action in self.order))
        self.order.append(Forward(saved.microbatch))
        self._alive.add(saved)
        self.live = max(self.live, len(self._alive))
        return _Noted.apply(out, saved, self.order)  # type: ignore[no-any-return,no-untyped-call]


class _Saved:
    """What a graph holds for one micro-batch: gone when the graph is."""

    def __init__(self, microbatch: int) -> None:
        self.microbatch = microbatch


class _Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, saved: _Saved, order: list[Compute]) -> Tensor:
        ctx.saved, ctx.order = saved, order
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.order.append(Backward(ctx.saved.microbatch))
        ctx.saved = None
        return grad.clone(), None, None


def _ran(world: World, runs: dict[str, Run]) -> Iterator[Metric]:
    axis = world.axis("pipeline", range(world.size))
    for microbatches in MICROBATCHES:
        for name, run in runs.items():
            stage = Noting()
            run(axis, stage, microbatches)
            where = f"{name}.p{world.size}.m{microbatches}"
            mine = [[isinstance(a, Backward), a.microbatch] for a in stage.order]
            rows = world.whole.all_gather(torch.tensor([mine])).tolist()
            orders = [[(Backward if back else Forward)(m) for back, m in row] for row in rows]
            idle = bubble(simulate(orders, forward=1, backward=2))
            yield counted(f"{where}.bubble", idle, "share")
            live = world.whole.all_reduce(torch.tensor(stage.live), op="max")
            yield counted(f"{where}.live", int(live))


def _torch(schedule: type[Any]) -> Run:
    def run(axis: Axis, stage: Noting, microbatches: int) -> None:
        place = PipelineStage(stage, axis.rank, axis.size, torch.device("cpu"), group=axis.group)
        plan = schedule(place, microbatches, lambda y, _: y.square().mean())
        x = torch.ones(microbatches * B, H)
        last = axis.rank == axis.size - 1
        for _ in range(2):  # the first step runs the stage once more, to learn its shapes
            stage.forget()
            plan.step(*[x] * (axis.rank == 0), target=x if last else None, return_outputs=False)

    return run


def _megatron(axis: Axis, stage: Noting, microbatches: int) -> None:
    from costlab.contestants import megatron as core
    from costlab.contestants.megatron.stage import MegatronStage, forward_step

    config = core.config(hidden=H, heads=4, depth=axis.size, dtype=torch.float32)
    config.deallocate_pipeline_outputs = True  # as its training script sets it
    x = torch.ones(S, B, H)
    core.schedules.forward_backward_pipelining_without_interleaving(
        forward_step_func=forward_step(lambda y, _: y.square().mean()),
        data_iterator=iter([(x, x)] * microbatches),
        model=MegatronStage(stage, config),
        num_microbatches=microbatches, seq_length=S, micro_batch_size=B,
    )  # fmt: skip


def _grid_step(cut: bool) -> Ledger:
    """Count a step of a Megatron layer a stage, cut over the tensor axis."""
    from costlab.contestants import megatron as core
    from costlab.contestants.megatron.gpt import causal_mask, transformer_layer
    from costlab.contestants.megatron.stage import MegatronStage, forward_step

    config = core.config(hidden=H, heads=4, depth=2, dtype=torch.float32, sequence_parallel=cut)
    layer, mask = transformer_layer(config), causal_mask(S)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x, attention_mask=mask)[0]
            return out

    x = torch.ones(S // 2 if cut else S, B, H)
    ledger = Ledger()
    with ledger:
        core.schedules.forward_backward_pipelining_without_interleaving(
            forward_step_func=forward_step(lambda y, _: y.square().mean()),
            data_iterator=iter([(x, x)] * 2),
            model=MegatronStage(Layer(), config),
            num_microbatches=2, seq_length=S, micro_batch_size=B,
        )  # fmt: skip
    return ledger
