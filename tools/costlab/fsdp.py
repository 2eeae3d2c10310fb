"""Sharded data parallelism: time, what of its communication is hidden, and memory.

The same GPT step (forward, loss, backward, AdamW) under shardlab's FSDP, torch's DDP, FSDP1 and
FSDP2, each block a unit. Of our step:

- `hidden-share`: of the time with a collective under way, the share in which the rank computed,
  too, by the timelines of many steps (timeline.py). It says what is hidden, not that hiding is
  free: over gloo the thread that moves the bytes wants a core, and takes it from the products.
- `communication-cost`: the share of the step that would be saved if communication were free, 1 −
  silent/step. `silent` is the same step over an axis whose collectives are copies within the rank.
- `communication`: the step's own collectives run alone, one after another.

Memory is a rank's tensors, counted as they come and go; on CUDA the allocator's. `peak.formula` is
`footprint.sharded_peak`, given the activations that DDP's step was seen to keep, and the gradient
of the logits, with which backward begins.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

import torch

from costlab import footprint, largest, overlap, timeline
from costlab.breakdown import replay, watched
from costlab.contestants import fsdp as contestants
from costlab.contestants import tutor
from costlab.contestants.fsdp import Training
from costlab.contestants.rounds import Rounds, Step, measuring
from costlab.footprint import Model
from costlab.result import Metric
from costlab.settings import Settings
from costlab.silent_axis import SilentAxis
from costlab.timed import by_rounds, derived, ratio, timed
from costlab.watch import Watch
from shardlab.comm import Axis, World
from shardlab.gpt.model import GPT

SECTION = "fsdp"
HIDDEN = {"quick": (128, 256), "full": (64, 128, 256, 512)}
STEPS = {"quick": 20, "full": 40}  # whose timelines are looked at
# Rounds of all contestants, and of what `communication-cost` stands on.
PLANS = {
    "quick": (Rounds(seconds=4, least=5, most=60, warmup=1), Rounds(seconds=4, least=12, warmup=0)),
    "full": (
        Rounds(seconds=15, least=15, most=60, warmup=1),
        Rounds(seconds=15, least=25, warmup=0),
    ),
}
NAMES = {
    "ours over gloo": "fsdp",
    "ours over shared memory": "fsdp-shared-memory",
    "DDP": "ddp",
    "FSDP1": "fsdp1",
    "FSDP2": "fsdp2",
}
LOGITS = 4 * tutor.BATCH * tutor.SEQUENCE * tutor.VOCAB  # bytes
Times = Mapping[str, Sequence[float]]


def measure(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Every hidden size; the largest models; one step's timeline."""
    if world.size == 1:
        yield "one rank shards nothing"
        return
    order = random.Random(settings.seed)  # noqa: S311  (an order, no secret)
    for hidden in HIDDEN[settings.profile]:
        times, alone = yield from _timed(world, settings, hidden, order)
        yield from steps_of(hidden, times, world.size)
        yield from shares_of(hidden, alone, world.size)
        yield from hidden_share(world, hidden, STEPS[settings.profile])
        yield f"hidden {hidden}: memory"
        yield from memory(world, hidden)
    yield from largest.metrics()
    yield "one step's timeline"
    yield from timeline.metrics(timeline.record(world, settings))


def _timed(
    world: World, settings: Settings, hidden: int, order: random.Random
) -> Generator[str, None, tuple[Times, Times]]:
    """Seconds of all libraries' steps; and, in rounds of their own, of ours and its parts.

    A share is a small difference between large times, so it is given more rounds.
    """
    plan, more = PLANS[settings.profile]
    names = list(NAMES)
    if world.device.type != "cpu":
        names.remove("ours over shared memory")
    where = f"hidden {hidden}: "
    yield f"{where}{len(names)} contestants"
    with contestants.build(world, hidden=hidden, contestants=names) as built:
        steps: dict[str, Step] = {NAMES[name]: step for name, step in built.items()}
        times = yield from measuring(world, steps, plan, order, where)
        together = {"fsdp": steps["fsdp"], **parts(world, hidden)}
        alone = yield from measuring(world, together, more, order, f"{where}overlap, ")
        return times, alone


def parts(world: World, hidden: int) -> dict[str, Step]:
    """Our step without communication, and its communication alone."""
    axis = world.whole
    known = Training(world, lambda _, gpt: contestants.ours(axis, gpt), hidden)
    known.step()  # the order of units, and with it the prefetching, is known from the second on
    _, entries = watched(known.step)
    alone = SilentAxis(world.size, world.rank)
    silent = Training(world, lambda _, gpt: contestants.ours(alone, gpt), hidden)
    return {
        "silent": lambda: _unsaid(silent.step),
        "communication": replay(axis, entries, world.device),
    }


def _unsaid(step: Callable[[], object]) -> None:
    """Run a step whose loss is not to be compared."""
    step()


def steps_of(hidden: int, times: Times, ranks: int) -> Iterator[Metric]:
    """Each library's step, and how ours compares."""
    start = f"fsdp.h{hidden}"
    for name in NAMES.values():
        if name in times:
            yield timed(f"{start}.step.{name}", times[name], ranks=ranks)
    for name in ("ddp", "fsdp1", "fsdp2"):
        yield ratio(f"{start}.ratio.{name}", times["fsdp"], times[name], ranks=ranks)


def shares_of(hidden: int, times: Times, ranks: int) -> Iterator[Metric]:
    """The step without communication, communication without the step, and what it costs."""
    start = f"fsdp.h{hidden}"
    yield timed(f"{start}.step.silent", times["silent"], ranks=ranks)
    yield timed(f"{start}.communication", times["communication"], ranks=ranks)
    rounds = [1 - b / a for a, b in zip(times["fsdp"], times["silent"], strict=True)]
    yield by_rounds(f"{start}.communication-cost", rounds, "ratio")


def hidden_share(world: World, hidden: int, count: int) -> Iterator[Metric | str]:
    """The median over `count` steps, with its interval; of each step the mean over the ranks."""
    mine, watch, steps = [], Watch(world), iter(timeline.steps(world, hidden))
    while not watch.enough(count):
        with watch.round():
            spans = next(steps)
        mine.append(overlap.hidden_share(spans))
        yield f"hidden {hidden}: timeline {watch.clean} of {count}"
    yield watch.told(count // 2)
    together = torch.tensor(mine, dtype=torch.float64, device=world.device)
    shares = watch.kept(count // 2, world.whole.all_reduce(together, op="mean").tolist())
    yield by_rounds(f"fsdp.h{hidden}.hidden-share", shares, "ratio", how="measured")


def memory(world: World, hidden: int) -> Iterator[Metric]:
    """Peak and state of our step and DDP's, and what arithmetic makes of them."""
    start = f"fsdp.h{hidden}"
    mine = footprint.measured(world, lambda world, gpt: contestants.ours(world.whole, gpt), hidden)
    theirs = footprint.measured(world, contestants.ddp, hidden)
    by = "torch's allocator" if world.device.type == "cuda" else "live tensors"
    for what, seen in {"fsdp": mine, "ddp": theirs}.items():
        for part, value in {"peak": seen.peak, "state": seen.state}.items():
            yield Metric(
                id=f"{start}.{part}.{what}", value=value, unit="B", how="measured",
                detail={"by": by, "ranks": world.size},
            )  # fmt: skip
    model = _model(hidden)
    activations = theirs.activations + LOGITS
    for part, value in {
        "peak.formula": footprint.sharded_peak(model, world.size, activations),
        "state.formula": footprint.sharded(model, world.size),
        "state.formula-ddp": footprint.replicated(model),
    }.items():
        yield derived(
            f"{start}.{part}", value, "B", parameters=model.parameters,
            activations=activations,
        )  # fmt: skip


def _model(hidden: int) -> Model:
    gpt = GPT(tutor.config(hidden), tensor=Axis.alone())
    total = sum(p.numel() for p in gpt.parameters())
    block = sum(p.numel() for p in gpt.layers["0"].parameters())
    return Model(total, total - tutor.LAYERS * block, block)
