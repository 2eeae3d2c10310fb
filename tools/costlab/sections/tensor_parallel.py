"""Tensor parallelism: the grammar tutor's step, and the same step at other hidden sizes.

One process against n ranks, over each link there is, with megatron-core and DTensor beside, and
one process with a thread for each rank. Then our step over the backend's link taken apart; every
piece is run once in every round, so that what is subtracted was measured within a moment:

- `matmul`: the step's own matrix products and attention kernels, forward and backward, run alone on
  all ranks at once (measured).
- `latency`: as many collectives as the step has, of one element each, run alone (measured).
- `communication`: the same collectives at their own sizes, run alone (measured).
- `volume`: `communication` less `latency`, of the same round (derived).
- `launch`: what the host does to get a step going: Python, autograd, the dispatcher. It is the same
  rank's step of a model so small (two tokens, 8 features) that arithmetic vanishes, over an axis
  that sends nothing (measured). On a GPU the host runs ahead, so there it is a bound.
- `other`: a residual: what is left of a round's step when its other parts are taken off. In it are
  norms, GELU, loss, optimizer, waiting for the slower rank, and that a part within a step does not
  take what it takes alone; less what overlaps. Its interval may include 0 (derived).

A part is the median of its rounds, with an interval, and so is its share of the same round's step;
medians need not add up to the last digit. `sweep.…` is what the section "collectives" would have
the step's collectives take (sweep_check.py).

Besides, `cut-efficiency`: the whole step's matrix work over n times a rank's. Below 1, smaller
matrices run at fewer operations a second.
"""

import random
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack

import torch

from costlab.implementations import tp as contestants
from costlab.implementations import tutor
from costlab.implementations.rounds import Rounds, Step, measuring, unsaid
from costlab.implementations.tp import Task
from costlab.record.names import Name
from costlab.record.options import Budget, Settings
from costlab.record.result import Item, Load, Metric
from costlab.sections import sweep_check
from costlab.sections.breakdown import SilentAxis, replay, watched
from costlab.sections.plan import Plan
from costlab.sections.sweep_check import Calls
from costlab.sections.tp_metrics import Times, crossover, metrics
from shardlab.comm import Axis, World
from shardlab.comm.host import count_cores
from shardlab.gpt.model import GPTConfig

# What is measured unless hidden sizes are given: beyond 1,024 a round takes half a minute.
HIDDEN = {"quick": (64, 128, 256, 512, 1024), "full": (64, 128, 256, 512, 1024, 2048)}
REPEATED = {"quick": 128, "full": 512}  # hidden: up to here every launch measures it
OTHERS_UP_TO = {"quick": 512, "full": 1024}  # hidden: megatron-core and DTensor stop here


def ranks(settings: Settings) -> tuple[int, ...]:
    """2; and 4 where there is a core or a GPU for each."""
    places = torch.cuda.device_count() if settings.device == "cuda" else count_cores()
    return (2, 4) if places >= 4 else (2,)


def launches(settings: Settings) -> int:
    """Several sets of fresh processes, if there are sizes to repeat."""
    return 3 if repeated(settings) else 1


def hidden_sizes(settings: Settings) -> tuple[int, ...]:
    """The hidden sizes to measure, ascending."""
    return settings.hidden or HIDDEN[settings.profile]


def repeated(settings: Settings) -> tuple[int, ...]:
    """Those that every launch measures: short steps, where launches differ most."""
    return tuple(size for size in hidden_sizes(settings) if size <= REPEATED[settings.profile])


def measure(world: World, settings: Settings) -> Iterator[Item]:
    """Every hidden size; a launch after the first, the repeated ones."""
    order = random.Random(settings.seed)  # noqa: S311  (an order, no secret)
    sizes = repeated(settings) if settings.launch else hidden_sizes(settings)
    budget = Budget.of(settings.seconds)
    for number, hidden in enumerate(sizes, 1):
        where = f"hidden {hidden} ({number} of {len(sizes)})"
        share = budget.share(1 / (len(sizes) - number + 1))
        times, calls = yield from _timed(world, settings, hidden, order, where, until=share.until)
        yield from metrics(hidden, times, world.size, backend=world.backend, calls=calls)


def _timed(
    world: World, settings: Settings, hidden: int, order: random.Random, where: str,
    *, until: float,
) -> Generator[str | Load, None, tuple[dict[str, list[float]], Calls]]:  # fmt: skip
    """Seconds of each contestant's and each part's steps at one size; the step's collectives."""
    with_megatron = hidden <= OTHERS_UP_TO[settings.profile]
    calls: Calls = {}
    with ExitStack() as stack:
        names = chosen(world.device.type, with_megatron=with_megatron)
        steps = dict(
            stack.enter_context(contestants.build(world, hidden=hidden, contestants=names))
        )
        yield f"{where}: {len(steps)} contestants"
        if with_megatron or settings.profile == "full":
            pieces, calls = parts(world, hidden)
            steps |= pieces
        plan = rounds(hidden, full=settings.profile == "full")
        times = yield from measuring(world, steps, plan, order, f"{where}: ", until=until)
        return _named(times, world.backend), calls


def chosen(device: str, *, with_megatron: bool) -> list[str]:
    """The contestants on one kind of device, with other libraries or without."""
    names = ["alone", "ours over gloo"]
    if device == "cpu":
        names.append("ours over shared memory")
    if with_megatron:
        names += [contestants.BASE, "dtensor"]
        names += ["alone on both cores"] if device == "cpu" else []
    return names


def rounds(hidden: int, *, full: bool) -> Rounds:
    """Fewer where a step takes seconds: the quick profile has to end."""
    small = hidden <= 256
    if full:
        return Rounds(seconds=20, least=20 if small else 6, most=100, warmup=2 if small else 0)
    least = 6 if small else 4 if hidden <= 512 else 3
    seconds = 3 if small else 6  # in each launch
    return Rounds(seconds=seconds, least=least, most=30, warmup=1 if small else 0)


def parts(world: World, hidden: int) -> tuple[dict[str, Step], Calls]:
    """The step's parts, each as a step of its own; and its collectives, counted by size."""
    axis = world.axis("tensor", range(world.size))
    task = Task(tutor.config(hidden), *tutor.batch(world.device), world.device)
    products, entries = watched(contestants.ours(task, axis))
    whole = watched(contestants.ours(task, Axis.alone()))[0] if world.rank == 0 else None
    silent = SilentAxis(world.size, world.rank)
    least = contestants.ours(tiny(world.device), silent)
    pieces: dict[str, Step] = {
        "matmul": products.replay,
        "matmul-whole": lambda: whole.replay() if whole else None,
        "communication": replay(axis, entries, world.device),
        "latency": replay(axis, entries, world.device, elements=1),
        "launch": unsaid(least),
    }
    return pieces, sweep_check.calls(entries)


def tiny(device: torch.device) -> Task:
    """A step of as many operations and collectives, with next to no arithmetic in them."""
    config = GPTConfig(
        layers=tutor.LAYERS, hidden=2 * tutor.HEADS, heads=tutor.HEADS, vocab=8, sequence=2
    )
    tokens = torch.zeros(1, 2, dtype=torch.int64, device=device)
    return Task(config, tokens, tokens, device)


def _named(times: Times, backend: str) -> dict[str, list[float]]:
    """Contestants under the names that metrics have."""
    names = {
        "alone": "one",
        "alone on both cores": "one-all-cores",
        "ours over gloo": backend,
        "ours over shared memory": "shared-memory",
    }
    return {names.get(name, name): list(seconds) for name, seconds in times.items()}


def derive(metrics: Mapping[str, Metric]) -> Iterator[Metric]:
    """What all launches together say: the crossover, and what the sweep says of the collectives."""
    speedups: dict[Name, dict[int, Metric]] = {}
    for metric in metrics.values():
        if metric.name.fits({"topic": "tp", "what": "speedup"}):
            curve = metric.name.but(what="crossover", hidden=0)
            speedups.setdefault(curve, {})[metric.name.hidden] = metric
    for name, by_hidden in speedups.items():
        device = next(iter(by_hidden.values())).device
        yield from (metric.on(device) for metric in crossover(name, by_hidden))
    yield from sweep_check.derive(metrics, "tp")


PLAN = Plan(measure, derive, ranks=ranks, launches=launches)
