"""What a collective costs: six operations over every link there is, by size.

Protocol. A *point* is a link, an operation, a size and a mode. Each point is called once untimed
and its result verified, then warmed up. Then come rounds: each visits every point, in an order
drawn anew, so that a machine that slows down for a minute slows all sizes a little rather than one
of them a lot; a round in which something else used the cores is dropped. Before each timed call a
barrier; a call takes as long as its slowest rank. At the end a quarter of the results, drawn anew,
is verified once more.

    blocking      one call, and its result is there
    back-to-back  a train of calls started one after another, then waited for; a call's share
                  (at powers of two; in the quick profile, at every second one up to 4 MiB)
    enqueued      on a GPU, up to 1 MiB: twenty calls queued one after another, timed by the
                  device's own events; a call's share, without what the host takes. nccl-tests
                  queues as many, and reads the host's clock

Buffers are rotated, so that a call finds its input no warmer than the last one left it.
"""

import gc
import random
import time
from collections.abc import Callable, Generator, Iterator
from itertools import chain

import torch

from costlab.record.names import call
from costlab.record.noise import NoiseMonitor
from costlab.record.options import Budget, Settings
from costlab.record.provenance import cores
from costlab.record.result import Item, Metric
from costlab.record.statistics import median_ci, p20_ci, percentile
from costlab.sections.collectives import operations
from costlab.sections.collectives.operations import ITEM, OPERATIONS, Operation, elements
from costlab.sections.collectives.point import (
    MIDDLING,
    MODES,
    TIMED_BY_EVENTS,
    Buffers,
    Point,
    finishing,
    points_of,
)
from costlab.sections.plan import Plan
from shardlab.comm import World

_POWERS = tuple(1 << power for power in range(10, 27))  # 1 KiB … 64 MiB
# Beside them 1.5, 3 … 48 MiB: where caches end, a curve bends within an octave.
_BETWEEN = tuple(3 << power for power in range(19, 25))
SIZES = {"quick": _POWERS, "full": tuple(sorted(_POWERS + _BETWEEN))}
BUDGET = {"quick": 12.0, "full": 90.0}  # seconds of measuring, a launch
LAUNCHES = 5  # sets of fresh processes: between them lies more than within one
LEAST, MOST = 2, 60  # rounds
LARGEST, LARGEST_TRAINED = 16 << 20, 4 << 20  # bytes, in the quick profile


def measure(world: World, settings: Settings) -> Iterator[Item]:
    """Measure every point; yield all metrics after each round, each time on more samples."""
    sizes = settings.sizes or SIZES[settings.profile]
    budget, largest = Budget.of(settings.seconds), elements(max(sizes), world.size)
    buffers = Buffers(largest, world.device)
    line_up = _barrier(world)
    points: list[Point] = []
    checks: list[Callable[[], None]] = []
    for link in operations.links(world):
        for operation in OPERATIONS.values():
            yield f"{link} {operation.name}: first calls"
            for size in sizes:
                modes = _modes(operation, size, settings, world.device)
                if modes:
                    result_point, check = points_of(world, link, operation, size, buffers)
                    check()
                    points += [point for point in result_point if point.mode in modes]
                    checks.append(check)
    yield "warm-up"
    for point in points:
        point.step(0)
    watch = yield from _rounds(world, settings, points, line_up, budget.until)
    order = random.Random(settings.seed)  # noqa: S311
    for check in order.sample(checks, len(checks) // 4):
        check()
    yield from (_metric(point, world, watch) for point in points)


def _modes(
    operation: Operation, size: int, settings: Settings, device: torch.device
) -> tuple[str, ...]:
    """Return the modes that a size is measured in; the quick profile leaves some out.

    Its largest sizes are the all-reduce's alone, and trains are short of them: their share of a
    large call's time is nothing.
    """
    blocking, train, enqueued = ((mode,) for mode in MODES)
    queued = enqueued if device.type in TIMED_BY_EVENTS and size <= MIDDLING else ()
    if settings.sizes:
        return blocking + train + queued
    if settings.profile == "full":
        return blocking + (train + queued if size in _POWERS else ())
    if size > LARGEST and operation.name != "all_reduce":
        return ()
    doubles = size.bit_length() % 2 == 1  # every second size
    return blocking + (train + queued if doubles and size <= LARGEST_TRAINED else ())


def _rounds(
    world: World, settings: Settings, points: list[Point], line_up: Callable[[], None],
    until: float,
) -> Generator[Item, None, NoiseMonitor]:  # fmt: skip
    order = random.Random(settings.seed)  # noqa: S311  (an order, no secret)
    wanted, watch, turn = LEAST, NoiseMonitor(world, until), 0
    gc.collect()
    gc.disable()
    try:
        while not watch.enough(wanted):
            begin = time.perf_counter()
            seconds: list[float] = []
            visited = order.sample(points, len(points))
            with watch.round():
                for point in visited:
                    if point.size <= MIDDLING:  # not the first of its kind since a large one
                        point.step(turn)
                    for _ in range(point.visits):
                        line_up()
                        seconds.append(point.step(turn))
                        turn += 1
            _exchange(world, visited, seconds)
            if watch.drawn == 1:  # the first round says how many the time allows
                spent = _max_over_ranks(world, [time.perf_counter() - begin])[0]
                wanted = max(LEAST, min(MOST, int(BUDGET[settings.profile] / spent)))
            yield watch.progress(wanted)
            yield from (_metric(point, world, watch) for point in points)
        yield watch.load(LEAST)
    finally:
        gc.enable()
    return watch


def _exchange(world: World, visited: list[Point], seconds: list[float]) -> None:
    """Keep each call's slowest and fastest rank."""
    slowest = _max_over_ranks(world, seconds)
    fastest = [-t for t in _max_over_ranks(world, [-t for t in seconds])]
    place = 0
    for point in visited:
        point.slowest.append(slowest[place : place + point.visits])
        point.fastest.append(fastest[place : place + point.visits])
        place += point.visits


def _max_over_ranks(world: World, values: list[float]) -> list[float]:
    stacked = torch.tensor(values, dtype=torch.float64, device=world.device)
    maxima: list[float] = world.whole.all_reduce(stacked, op="max").tolist()
    return maxima


def _metric(point: Point, world: World, watch: NoiseMonitor) -> Metric:
    slowest, fastest = (
        list(chain.from_iterable(watch.select_clean(LEAST, rounds)))
        for rounds in (point.slowest, point.fastest)
    )
    times = p20_ci(slowest)
    skew = [slow - fast for slow, fast in zip(slowest, fastest, strict=True)]
    size = elements(point.size, world.size) * ITEM
    speed = size / times.value
    name = call(point.link, point.operation.name, world.size, point.size, point.mode)
    return Metric(
        id=name.id,
        value=times.value,
        unit="s",
        low=times.low,
        high=times.high,
        samples=len(slowest),
        series=[slowest],
        detail={
            "algbw": speed,
            "busbw": speed * float(point.operation.bus_factor(world.size)),
            "median": median_ci(slowest).value,
            "p95": percentile(slowest, 95),
            "skew": median_ci(skew).value,
            "verified": True,
            "oversubscribed": world.device.type == "cpu" and world.size > cores(),
        },
    )


def _barrier(world: World) -> Callable[[], None]:
    """Return what lines the ranks up: by the axis that lets go of them most evenly."""
    if world.device.type == "cpu" and world.failure_reporter.all_on_this_host():
        return world.axis("barrier", range(world.size), link="shared-memory").barrier
    finish = finishing(world.device)

    def line_up() -> None:
        world.whole.barrier()
        finish()

    return line_up


PLAN = Plan(
    measure,
    ranks=lambda settings: (max(2, settings.ranks),),  # one alone has nobody to talk to
    # The GPUs' link and, beside it, the CPU's.
    devices=lambda settings: ("cuda", "cpu") if settings.device == "cuda" else ("cpu",),
    launches=lambda _: LAUNCHES,
)
