"""What is asked for, whatever the machine: collectives, bytes, orderings, counted in real runs.

Two ranks over gloo run our layers and Megatron's, replicas, shards and a pipeline under the ledger;
four run what two would not tell apart: schedules, and bytes on a wire. What needs no ranks (groups,
a ring) is run here as it is. Nothing in this section is a constant, and nothing in it but the bytes
on the wire depends on the machine.
"""

from collections.abc import Iterator

from costlab.record.options import Settings
from costlab.record.result import Item
from costlab.sections.counts import (
    count_all_reduce,
    count_context,
    count_data,
    count_fsdp,
    count_pipeline,
    count_source,
    count_tensor,
)
from costlab.sections.plan import Plan
from shardlab.comm import World

try:
    from costlab.sections.counts import count_megatron, count_stages
except ImportError as fault:  # without megatron-core nothing is counted of it
    LACKING = str(fault)
else:
    LACKING = ""

RANKS = (2, 4)


def measure(world: World, settings: Settings) -> Iterator[Item]:
    """Count, on every rank alike."""
    yield from _two(world) if world.size == RANKS[0] else _four(world)
    if LACKING:
        yield f"megatron-core's own are left out: {LACKING}"


def _two(world: World) -> Iterator[Item]:
    yield "layers of a transformer block"
    yield from count_tensor.block(world)
    yield from count_tensor.pieces(world)
    yield from count_tensor.intensity(world)
    yield "attention over cut sequences"
    yield from count_context.in_a_step(world)
    yield from count_context.balance()
    yield from count_context.hidden_from(world)
    yield from count_context.held_activations()
    yield "replicas and shards"
    yield from count_data.replicas(world)
    yield from count_fsdp.training(world)
    yield from count_fsdp.inference(world)
    yield from count_data.pipeline(world)
    yield "schedules, memory, sources"
    yield from count_pipeline.schedules()
    yield from count_fsdp.memory()
    yield from count_source.pytorch()
    yield from count_all_reduce.rings()
    yield "bytes on the wire"
    yield from count_all_reduce.written(world)
    if not LACKING:
        yield "megatron-core's layers, groups, datasets"
        yield from count_megatron.layers(world)
        yield from count_megatron.balance(world)
        yield from count_megatron.groups()
        yield from count_source.megatron()
        yield from count_data.datasets(world)
        yield "megatron-core's layer of experts"
        yield from count_megatron.experts(world)


def _four(world: World) -> Iterator[Item]:
    yield "schedules of pipelines"
    yield from count_pipeline.schedulers(world)
    yield from count_pipeline.beside_1f1b()
    yield from count_pipeline.planned_by_torch(world)
    yield "attention over sequences cut in four"
    yield from count_context.in_a_step(world)
    yield "bytes on the wire of four"
    yield from count_all_reduce.written(world)
    if not LACKING:
        yield "megatron-core's pipelines"
        yield from count_stages.scheduler(world)
        yield from count_stages.messages(world)
        yield from count_stages.beside_1f1b(world)


# On the CPU: what is counted is the same on any, and two ranks are always to be had.
PLAN = Plan(measure, ranks=lambda _: RANKS, devices=lambda _: ("cpu",))
