"""Schedules that promise a smaller bubble than 1F1B's, beside it: ours, PyTorch's and Megatron's.

Dimensions: S sequence, B batch, H hidden.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleZBVZeroBubble
from torch.utils.flop_counter import FlopCounterMode

from costlab.contestants import tutor
from costlab.record.result import Metric
from costlab.sections.counts.counted import counted
from shardlab.comm import World
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.ledger import Ledger
from shardlab.proofs.schedules.timeline import Timeline, bubble, peak_live, simulate

STAGES, MICROBATCHES, CHUNKS = 4, 8, 2
S, B, H = 8, 2, 16
WHERE = f"p{STAGES}.m{MICROBATCHES}"


def beside_1f1b() -> Iterator[Metric]:
    """Idle time of ZB-H1 and of interleaving, of 1F1B's, where forward, B and W take as long."""
    plain = by_name("1f1b", STAGES, MICROBATCHES)
    halved = by_name("zb-h1", STAGES, MICROBATCHES)
    once = simulate(plain, forward=1, backward=2)
    apart = simulate(halved, forward=1, backward=1, weight=1)
    yield counted(f"zb-h1.{WHERE}.bubble", bubble(apart), "share")
    yield counted(f"zb-h1.{WHERE}.idle-of-1f1b", _idle(apart) / _idle(once), "ratio")
    for name, schedule in (("1f1b", plain), ("zb-h1", halved)):
        live = [peak_live(actions) for actions in schedule]
        yield counted(f"{name}.{WHERE}.live-fullest", max(live))
        yield counted(f"{name}.{WHERE}.live-last", live[-1])
    dealt = by_name("interleaved", STAGES, MICROBATCHES, CHUNKS)
    pieces = simulate(dealt, forward=1 / CHUNKS, backward=2 / CHUNKS)
    yield counted(f"interleaved.{WHERE}.idle-of-1f1b", _idle(pieces) / _idle(once), "ratio")


def planned_by_torch(world: World) -> Iterator[Metric]:
    """PyTorch's ZBV, in the ticks of its plan: idle in a step, and between a stage's own ends."""
    places = (world.rank, 2 * STAGES - 1 - world.rank)
    device = torch.device("cpu")
    halves: list[Any] = [PipelineStage(nn.Linear(H, H), at, 2 * STAGES, device) for at in places]
    plan = ScheduleZBVZeroBubble(halves, MICROBATCHES).pipeline_order.values()
    busy = [[tick for tick, action in enumerate(row) if action] for row in plan]
    whole = 1 + max(ticks[-1] for ticks in busy)
    idle = 1 - sum(map(len, busy)) / (STAGES * whole)
    yield counted(f"torch-zbv.{WHERE}.bubble", idle, "share")
    gaps = max(ticks[-1] - ticks[0] + 1 - len(ticks) for ticks in busy)
    yield counted(f"torch-zbv.{WHERE}.ticks-idle-within", gaps)


def run_by_megatron(world: World) -> Iterator[Metric]:
    """What a layer of the tutor's size costs, in halves; and interleaved 1F1B's messages."""
    try:
        from costlab.contestants import megatron as core
    except ImportError:
        return
    with core.megatron(pipeline=STAGES):
        forward, inputs, weights = _costs()
        plain = _sent(1)
    once = by_name("1f1b", STAGES, MICROBATCHES)
    apart = by_name("zb-h1", STAGES, MICROBATCHES)
    idle = _idle(simulate(apart, forward=forward, backward=inputs, weight=weights))
    before = _idle(simulate(once, forward=forward, backward=inputs + weights))
    yield counted("zb-h1.layer-megatron.idle-of-1f1b", idle / before, "ratio",
                  forward=forward, inputs=inputs, weights=weights)  # fmt: skip
    with core.megatron(pipeline=STAGES, virtual_pipeline_model_parallel_size=CHUNKS):
        dealt = _sent(CHUNKS)
    sent = world.whole.all_gather(torch.tensor([[plain, dealt]])).double()
    for name, of in (("all-stages", sent.sum(0)), ("inner-stage", sent[1])):
        times = float(of[1] / of[0])
        yield counted(f"interleaved-megatron.{WHERE}.{name}.messages-of-1f1b", times, "ratio")


def _idle(timeline: Timeline) -> float:
    """Return how long all stages together wait."""
    spans = [span for stage in timeline for span in stage]
    return max(s.end for s in spans) * len(timeline) - sum(s.end - s.start for s in spans)


def _costs() -> tuple[int, int, int]:
    """Return a layer's operations: forward, of its inputs' gradients, of its weights'."""
    from costlab.contestants import megatron as core
    from costlab.contestants.megatron.gpt import causal_mask, transformer_layer

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
    from costlab.contestants import megatron as core
    from costlab.contestants.megatron.stage import MegatronStage, forward_step

    several: dict[str, Any] = {"virtual_pipeline_model_parallel_size": chunks} if chunks > 1 else {}
    config = core.config(hidden=H, depth=STAGES * chunks, dtype=torch.float32, **several)
    x = torch.ones(S, B, H)
    data = [iter([(x, x)] * MICROBATCHES) for _ in range(chunks)]
    model = [MegatronStage(nn.Linear(H, H), config, piece) for piece in range(chunks)]
    run: Any = core.schedules.get_forward_backward_func()
    ledger = Ledger()
    with ledger:
        run(
            forward_step_func=forward_step(lambda y, _: y.square().mean()),
            data_iterator=data if several else data[0], model=model if several else model[0],
            num_microbatches=MICROBATCHES, seq_length=S, micro_batch_size=B,
        )  # fmt: skip
    return ledger.total("send").count
