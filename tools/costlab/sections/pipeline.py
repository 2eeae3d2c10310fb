"""Pipelines: the bubble that GPipe and 1F1B leave, and what each stage holds meanwhile.

The bubble is the share of all stages' time, from first start to last end of a step, in which they
don't compute: (p−1)/(m+p−1) in theory, for p equal stages and m micro-batches. Where there is a
core for each stage the stages compute; elsewhere each waits for a fixed time instead, which
measures the schedule and its messages and nothing about computing (the detail says which). Beside
it, 1F1B of a small GPT under torch.distributed.pipelining and megatron-core.
"""

import math
import random
from collections.abc import Iterator, Sequence

from costlab.implementations import bubble, tutor
from costlab.implementations import schedulers as contestants
from costlab.implementations.rounds import Rounds, measuring
from costlab.record.names import Name
from costlab.record.noise import NoiseMonitor
from costlab.record.options import Budget, Settings
from costlab.record.result import Item, Metric
from costlab.sections.metrics import Detail, by_rounds, derived, ratio, timed
from costlab.sections.plan import Plan
from shardlab.comm import World
from shardlab.comm.host import count_cores
from shardlab.proofs.schedules.timeline import Timeline
from shardlab.proofs.schedules.timeline import bubble as idle

MICROBATCHES = 8
SCHEDULES = ("gpipe", "1f1b")
WAIT = 0.02  # seconds that a stage waits in place of a forward or a backward
PLANS = {
    "quick": Rounds(seconds=4, least=7, most=60, warmup=1),
    "full": Rounds(seconds=12, least=20, most=60, warmup=1),
}
NAMES = {
    "ours": "shardlab", "torch pipelining": "torch-pipelining", contestants.BASE: "megatron-core",
}  # fmt: skip


def measure(world: World, settings: Settings) -> Iterator[Item]:
    """Bubble and live micro-batches on all ranks; on two, the other libraries' steps too."""
    budget, rounds = Budget.of(settings.seconds), 30 if settings.profile == "full" else 7
    others = world.size == 2  # which are a third part
    if world.device.type == "cpu":
        for number, schedule in enumerate(SCHEDULES):
            yield f"{schedule} on {world.size} stages"
            share = budget.share(1 / (len(SCHEDULES) - number + others))
            yield from bubbles(world, schedule, rounds=rounds, until=share.until)
    else:
        yield "the bubble is measured on the CPU: on a GPU the host's clock sees launches only"
    if others:
        yield from beside_others(world, settings, budget.until)


def bubbles(world: World, schedule: str, *, rounds: int, until: float = math.inf) -> Iterator[Item]:
    """One schedule's bubble, what theory says of it, and what it holds."""
    kind = "compute" if count_cores() >= world.size else "wait"
    watch = NoiseMonitor(world, until)
    timelines = bubble.measured(
        world, bubble.stage(kind, WAIT), schedule=schedule, microbatches=MICROBATCHES,
        rounds=rounds, watch=watch,
    )  # fmt: skip
    yield watch.load(rounds // 2)
    yield from metrics(schedule, MICROBATCHES, timelines, kind=kind)


def metrics(
    schedule: str, microbatches: int, timelines: Sequence[Timeline], *, kind: str
) -> Iterator[Metric]:
    """What some rounds of one schedule say, over gloo; `kind` is that of `contestants.bubble`."""
    stages = len(timelines[0])
    base = Name("pipeline", schedule=schedule, stages=stages, microbatches=microbatches)
    ours = base.but(code="shardlab", link="gloo")
    idle_shares = [idle(timeline) for timeline in timelines]
    stages_do = "computing" if kind == "compute" else "waiting in place of work"
    yield by_rounds(ours.but(what="bubble"), idle_shares, "share", how="measured", stages=stages_do)
    theory = (stages - 1) / (microbatches + stages - 1)
    yield derived(base.but(what="bubble-theory"), theory, "share")
    live = max(bubble.live(timeline) for timeline in timelines)
    yield derived(ours.but(what="live"), live, "count", "counted")


def beside_others(world: World, settings: Settings, until: float) -> Iterator[Item]:
    """Step times of the tutor's size under three schedulers, and how ours compares."""
    plan = PLANS[settings.profile]
    order = random.Random(settings.seed)  # noqa: S311  (an order, no secret)
    yield "1F1B beside torch's and megatron-core's"
    with contestants.build(world, hidden=tutor.HIDDEN, microbatches=MICROBATCHES) as steps:
        times = yield from measuring(world, steps, plan, order, until=until)
    about: Detail = {"hidden": tutor.HIDDEN, "microbatches": MICROBATCHES, "schedule": "1f1b"}
    for name, shown in NAMES.items():
        yield timed(Name("pipeline", "step", code=shown, link=world.backend), times[name], **about)
    for name, shown in NAMES.items():
        if name != "ours":
            which = Name("pipeline", "ratio", code="shardlab", over=shown, link=world.backend)
            yield ratio(which, times["ours"], times[name], **about)


PLAN = Plan(measure, ranks=lambda _: (2, 4))
