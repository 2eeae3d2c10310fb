"""Sharded data parallelism: time, what of its communication is hidden, and memory.

The same GPT step (forward, loss, backward, AdamW) under shardlab's mini-FSDP, torch's DDP, FSDP1
and FSDP2, each block a unit. Of shardlab's step, and of nobody else's:

- `hidden-share`: of the time with a collective under way, the share in which the rank computed,
  too, by the timelines of many steps (timeline.py). It says what is hidden, not that hiding is
  free: over gloo the thread that moves the bytes wants a core, and takes it from the products.
- `communication-cost`: the share of the step that would be saved if communication were free, 1 −
  silent/step, round by round. `silent` is the same step over an axis whose collectives are copies
  within the rank. Its interval may include 0: then it can't be told from noise.
- `communication`: the step's own collectives run alone, one after another; beside it, as `sweep.…`,
  what the section "collectives" would have them take (sweep_check.py).

All of it is run once in every round, PyTorch's steps too: rows may be subtracted.

Memory is a rank's tensors, counted as they come and go; on CUDA the allocator's. `peak.formula` is
`footprint.sharded_peak`, given the activations that DDP's step was seen to keep, and the gradient
of the logits, with which backward begins.
"""

import math
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial

import torch

from costlab.implementations import fsdp as contestants
from costlab.implementations import tutor
from costlab.implementations.fsdp import Training
from costlab.implementations.rounds import Rounds, Step, measuring, unsaid
from costlab.record.names import Name
from costlab.record.noise import NoiseMonitor
from costlab.record.options import Budget, Settings
from costlab.record.result import Item, Load, Metric
from costlab.record.statistics import percentile
from costlab.sections import sweep_check
from costlab.sections.breakdown import SilentAxis, replay, watched
from costlab.sections.fully_sharded import footprint, timeline
from costlab.sections.fully_sharded.footprint import Model
from costlab.sections.metrics import Detail, by_rounds, derived, ratio, timed
from costlab.sections.plan import Plan
from costlab.sections.sweep_check import Calls
from shardlab.comm import Axis, World
from shardlab.gpt.model import GPT

HIDDEN = {"quick": (128, 256), "full": (64, 128, 256, 512)}
STEPS = {"quick": 20, "full": 40}  # whose timelines are looked at
# A share is a small difference between large times, so there are many rounds.
PLANS = {
    "quick": Rounds(seconds=6, least=9, most=60, warmup=1),
    "full": Rounds(seconds=30, least=25, most=100, warmup=1),
}
SHARED = "shardlab.shared-memory"
THEIRS = {"torch-ddp": "DDP", "torch-fsdp1": "FSDP1", "torch-fsdp2": "FSDP2"}
LOGITS = 4 * tutor.BATCH * tutor.SEQUENCE * tutor.VOCAB  # bytes
Times = Mapping[str, Sequence[float]]


def measure(world: World, settings: Settings) -> Iterator[Item]:
    """Every hidden size; the largest models; one step's timeline."""
    order = random.Random(settings.seed)  # noqa: S311  (an order, no secret)
    budget, sizes = Budget.of(settings.seconds), HIDDEN[settings.profile]
    for number, hidden in enumerate(sizes):
        parts_left = 2 * (len(sizes) - number)  # the steps and the timelines of each size
        share = budget.share(1 / parts_left)
        times, calls = yield from _timed(world, settings, hidden, order, share.until)
        yield from steps_of(hidden, times, world.size, world.backend)
        yield from shares_of(hidden, times, world.size, world.backend, calls)
        share = budget.share(1 / (parts_left - 1))
        yield from hidden_share(world, hidden, STEPS[settings.profile], until=share.until)
        yield f"hidden {hidden}: memory"
        yield from memory(world, hidden)
    yield from footprint.largest_models()
    yield "one step's timeline"
    yield from timeline.metrics(timeline.record(world, timeline.HIDDEN))


def names(backend: str) -> dict[str, str]:
    """The contestants, by what ids say of them: whose code, over which link."""
    names_by_code = {f"{code}.{backend}": name for code, name in THEIRS.items()}
    shared = {SHARED: "ours over shared memory"} if backend == "gloo" else {}
    return {f"shardlab.{backend}": "ours over gloo"} | shared | names_by_code


def _timed(
    world: World, settings: Settings, hidden: int, order: random.Random, until: float
) -> Generator[str | Load, None, tuple[Times, Calls]]:
    """Seconds of all libraries' steps, and of ours and its parts; our step's collectives."""
    links = names(world.backend)
    where = f"hidden {hidden}: "
    yield f"{where}{len(links)} contestants"
    with contestants.build(world, hidden=hidden, contestants=list(links.values())) as built:
        steps: dict[str, Step] = {code: built[name] for code, name in links.items()}
        pieces, calls = parts(world, hidden)
        plan = PLANS[settings.profile]
        times = yield from measuring(world, steps | pieces, plan, order, where, until=until)
        return times, calls


def parts(world: World, hidden: int) -> tuple[dict[str, Step], Calls]:
    """Our step without communication, and its communication alone; and what that is."""
    axis = world.whole
    training = Training(world, lambda _, gpt: contestants.ours(axis, gpt), hidden)
    training.step()  # the order of units, and with it the prefetching, is known from the second on
    _, entries = watched(training.step)
    alone = SilentAxis(world.size, world.rank)
    silent = Training(world, lambda _, gpt: contestants.ours(alone, gpt), hidden)
    pieces: dict[str, Step] = {
        "silent": unsaid(silent.step),
        "communication": replay(axis, entries, world.device),
    }
    return pieces, sweep_check.calls(entries)


def steps_of(hidden: int, times: Times, ranks: int, backend: str) -> Iterator[Metric]:
    """Each library's step; how ours compares, and how PyTorch's FSDPs compare with its DDP."""
    base, ddp = Name("fsdp", hidden=hidden, link=backend), "torch-ddp"
    for name in names(backend):
        code, _, link = name.partition(".")
        yield timed(base.but(what="step", code=code, link=link), times[name], ranks=ranks)
    for code in THEIRS:
        for first, second in (("shardlab", code), (code, ddp)):
            if first != second:
                which = base.but(what="ratio", code=first, over=second)
                both = (times[f"{code}.{backend}"] for code in (first, second))
                yield ratio(which, *both, ranks=ranks)


def shares_of(
    hidden: int, times: Times, ranks: int, backend: str, calls: Calls | None = None
) -> Iterator[Metric]:
    """Our step without communication, communication without the step, and what it costs."""
    base = Name("fsdp", hidden=hidden, code="shardlab", link=backend)
    step, silent = times[f"shardlab.{backend}"], times["silent"]
    step_median = percentile(step, 50)  # of the same rounds, by the same statistic
    about: Detail = {"ranks": ranks, "step": step_median}
    yield timed(base.but(what="silent", link=""), silent, **about)
    alone = times["communication"]
    yield timed(base.but(what="communication"), alone, **about, **(calls or {}))
    rounds = [1 - b / a for a, b in zip(step, silent, strict=True)]
    yield by_rounds(base.but(what="communication-cost"), rounds, "share", step=step_median)


def hidden_share(
    world: World, hidden: int, count: int, *, until: float = math.inf
) -> Iterator[Item]:
    """The median over `count` steps, with its interval; of each step the mean over the ranks."""
    hidden_shares, steps = [], iter(timeline.steps(world, hidden))
    watch = NoiseMonitor(world, until)
    while not watch.enough(count):
        with watch.round():
            spans = next(steps)
        hidden_shares.append(timeline.hidden_share(spans))
        yield f"hidden {hidden}: timeline {watch.clean} of {count}"
    yield watch.load(count // 2)
    stacked = torch.tensor(hidden_shares, dtype=torch.float64, device=world.device)
    shares = watch.select_clean(count // 2, world.whole.all_reduce(stacked, op="mean").tolist())
    name = Name("fsdp", "hidden-share", hidden=hidden, code="shardlab", link=world.backend)
    yield by_rounds(name, shares, "share", how="measured")


def memory(world: World, hidden: int) -> Iterator[Metric]:
    """Peak and state of three libraries' steps, and what arithmetic makes of them.

    Not FSDP2's: its DTensors wrap their shards, and would be counted beside them.
    """
    base = Name("fsdp", hidden=hidden)
    peaks = {
        code: footprint.measured(world, contestants.WRAPS[name], hidden)
        for code, name in (
            ("shardlab", "ours over gloo"), ("torch-fsdp1", "FSDP1"), ("torch-ddp", "DDP")
        )
    }  # fmt: skip
    by = "torch's allocator" if world.device.type == "cuda" else "live tensors"
    for code, seen in peaks.items():
        for part, value in {"peak": seen.peak, "state": seen.state}.items():
            name = base.but(what=part, code=code, link=world.backend)
            yield derived(name, value, "B", "measured", by=by, ranks=world.size)
    model = _model(hidden)
    activations = peaks["torch-ddp"].activations + LOGITS
    for part, by, value in (
        ("peak", "formula", footprint.sharded_peak(model, world.size, activations)),
        ("state", "formula", footprint.sharded(model, world.size)),
        ("state", "formula-ddp", footprint.sharded(model, 1)),
    ):
        yield derived(
            base.but(what=part, of=by), value, "B", parameters=model.parameters,
            activations=activations,
        )  # fmt: skip


def _model(hidden: int) -> Model:
    gpt = GPT(tutor.config(hidden), tensor=Axis.alone())
    total = sum(p.numel() for p in gpt.parameters())
    block = sum(p.numel() for p in gpt.layers["0"].parameters())
    return Model(total, total - tutor.LAYERS * block, block)


PLAN = Plan(
    measure,
    partial(sweep_check.derive, section="fsdp"),
    ranks=lambda settings: (max(2, settings.ranks),),  # one alone shards nothing
)
