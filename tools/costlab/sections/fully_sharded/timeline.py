"""The overlap of sharded data parallelism, as it happened: one step, two tracks a rank.

`compute` is what the rank's main thread does; its gaps are waits for a collective. `communication`
is each collective from its start to the arrival of its last message. A span of communication above
a span of compute is hidden; above a gap it is not. It is one step of one run, taken after some
untimed ones: a picture, not a statistic. A result keeps the spans as metrics, so that a figure can
be drawn again from the file. `hidden_share` says how much of the communication is hidden.

`WatchedAxis` notes when each of its collectives began and ended. Over gloo a collective goes on in
a thread of gloo's own, and its future says when the last message came. Some of ours are completed
by a local sum in `wait`; that belongs to the wait. Over shared memory nothing moves but in `start`
and `wait`, so there a collective has ended when its wait has.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from costlab.implementations.fsdp import Training, ours
from costlab.record.names import Name
from costlab.record.result import Metric
from shardlab.comm import Axis, Pending, World
from shardlab.comm.axis import Kind
from shardlab.fsdp import FSDP
from shardlab.fsdp.backward import on_gradient

HIDDEN = 512
UNTIMED = 3  # steps before it: the order of units is known after the first
SHORTEST = 100e-6  # seconds; what is shorter is the gap between two hooks


class WatchedAxis(Axis):
    """Notes every collective in `flights`, and calls out around each wait.

    Args:
        world: this rank's.
        name: what a flight is called, from the collective's kind, input and result.
        waits: called with True before a wait and False after it.

    Attributes:
        flights: (name, start, arrival of the last message).
    """

    def __init__(
        self, world: World, name: Callable[[str, Tensor, Tensor], str],
        waits: Callable[[bool], None],
    ) -> None:  # fmt: skip
        # Over gloo the way that the bench measures; its works can be watched.
        link = "fast-gloo" if world.backend == "gloo" else world.link
        super().__init__(world, "data", tuple(range(world.size)), link)
        self.flights: list[tuple[str, float, float]] = []
        self.waits = waits
        self._called = name

    def start(self, kind: Kind, x: Tensor, **settings: Any) -> Pending:
        """Start it, and note when."""
        begin = time.perf_counter()
        pending = super().start(kind, x, **settings)
        return _UnderWay(self, pending, self._called(kind, x, pending._result), begin)


class _UnderWay(Pending):
    """A collective that has begun; lands once, with its last message or else with its wait."""

    __slots__ = ("_begin", "_flights", "_inner", "_messages", "_name", "_waits")

    def __init__(self, axis: WatchedAxis, inner: Pending, name: str, begin: float) -> None:
        super().__init__(inner._result)
        self._inner, self._name, self._begin = inner, name, begin
        self._waits = axis.waits
        self._flights: list[tuple[str, float, float]] | None = axis.flights
        works = _works(inner._work)
        self._messages = len(works)
        for work in works:
            work.get_future().add_done_callback(self._arrived)

    def wait(self) -> Tensor:
        self._waits(True)
        try:
            return self._inner.wait()
        finally:
            self._land()
            self._waits(False)

    def _arrived(self, _: Any) -> None:
        self._messages -= 1
        if self._messages == 0:
            self._land()

    def _land(self) -> None:
        """Note the end, unless it is noted."""
        flights, self._flights = self._flights, None
        if flights is not None:
            flights.append((self._name, self._begin, time.perf_counter()))


def _works(work: Any) -> list[Any]:
    """torch's works behind one of ours; none for shared memory's."""
    if work is None:
        return []
    parts = getattr(work, "_works", [work])  # an exchange has one or one for each peer
    return [part for part in parts if isinstance(part, torch.distributed.Work)]


class Span(NamedTuple):
    """Something on a track.

    Attributes:
        track: "rank 0 compute", "rank 0 communication" ….
        name: "block 2 backward", "gather block 3" ….
        start_s, end_s: seconds since the earliest start.
    """

    track: str
    name: str
    start_s: float
    end_s: float


def record(world: World, hidden: int) -> list[Span]:
    """One step's spans, of all ranks, on every rank; ordered by track and start.

    Ranks of one host share a clock. Ranks of several are laid over each other at the barrier before
    the step, which is right within a message's latency.
    """
    return _merge_ranks(world, next(steps(world, hidden)))


def steps(world: World, hidden: int) -> Iterator[list[Span]]:
    """One step after another, for ever: this rank's spans of each."""
    return (_on_gpu if world.device.type == "cuda" else _on_cpu)(world, hidden)


def _merge_ranks(world: World, local: list[Span]) -> list[Span]:
    """Every rank's spans, from the earliest start."""
    every: list[list[Span]] = [[] for _ in range(world.size)]
    dist.all_gather_object(every, local)
    merged = sorted(
        (span for rank in every for span in rank), key=lambda span: (span.track, span.start_s)
    )
    first = min(span.start_s for span in merged)
    return [
        span._replace(start_s=span.start_s - first, end_s=span.end_s - first) for span in merged
    ]


def metrics(spans: Iterable[Span]) -> Iterator[Metric]:
    """The spans for a result: `timeline.000` …, a value each, its duration."""
    for number, span in enumerate(spans):
        yield Metric(
            id=Name("timeline", f"{number:03}").id, value=span.end_s - span.start_s, unit="s",
            detail={"track": span.track, "name": span.name, "start": span.start_s},
        )  # fmt: skip


class _Main:
    """What the main thread does, span by span."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float]] = []
        self._doing = ""
        self._since = 0.0

    def mark(self, doing: str) -> None:
        """From now on it does this; "" for nothing."""
        now = time.perf_counter()
        if self._doing and now - self._since >= SHORTEST:
            self.spans.append((self._doing, self._since, now))
        self._doing, self._since = doing, now

    def waits(self, begins: bool) -> None:
        """A wait begins, or ends; what was done before it goes on after it."""
        if begins:
            self.mark(self._doing)
        else:
            self._since = time.perf_counter()


def _on_cpu(world: World, hidden: int) -> Iterator[list[Span]]:
    main = _Main()
    axis = WatchedAxis(world, lambda *about: _called(training.model, *about), main.waits)
    training = Training(world, lambda _, gpt: ours(axis, gpt), hidden)
    _mark_units(training, main)
    for _ in range(UNTIMED):
        training.step()
    me, one_clock = f"rank {world.rank}", world.failure_reporter.all_on_this_host()
    while True:
        main.spans, axis.flights = [], []
        world.whole.barrier()
        origin = 0.0 if one_clock else time.perf_counter()
        training.step()
        tracks = [(f"{me} compute", *span) for span in main.spans]
        tracks += [(f"{me} communication", *flight) for flight in axis.flights]
        yield [Span(track, name, a - origin, b - origin) for track, name, a, b in tracks]


def _mark_units(training: Training, main: _Main) -> None:
    """Tell `main` where a step is, by hooks that run after FSDP's own."""
    gpt, blocks = training.gpt, training.gpt.layers

    def entering(number: str) -> Any:
        def hook(_: Any, inputs: tuple[Tensor, ...]) -> None:
            main.mark(f"block {number} forward")
            if number == "0":
                on_gradient(inputs[0], lambda _: main.mark("embedding backward"))

        return hook

    def leaving(number: str) -> Any:
        def hook(_: Any, __: Any, output: Tensor) -> None:
            if output.grad_fn is not None:
                output.grad_fn.register_prehook(lambda _: main.mark(f"block {number} backward"))
            if int(number) == len(blocks) - 1:
                main.mark("head and loss")

        return hook

    def judged(_: Any, __: Any, logits: Tensor) -> None:
        on_gradient(logits, lambda _: main.mark("head backward"))

    gpt.register_forward_pre_hook(lambda *_: main.mark("embedding"))
    gpt.register_forward_hook(judged)
    for number, block in blocks.items():
        block.register_forward_pre_hook(entering(number))
        block.register_forward_hook(leaving(number))
    training.optimizer.register_step_pre_hook(lambda *_: main.mark("AdamW"))
    training.optimizer.register_step_post_hook(lambda *_: main.mark(""))


def _called(model: Any, kind: str, x: Tensor, out: Tensor) -> str:
    """Name a collective after the unit that it serves."""
    assert isinstance(model, FSDP)
    for unit in model.units:
        name = unit.name.replace("layers.", "block ") or "root"
        if any(flat.full_F.data_ptr() == out.data_ptr() for flat in unit.flats):
            return f"gather {name}"
        buffers = [gradient._buffer_F for gradient in unit.gradients]
        if any(buffer is not None and buffer.data_ptr() == x.data_ptr() for buffer in buffers):
            return f"reduce {name}"
    return kind


def _on_gpu(world: World, hidden: int) -> Iterator[list[Span]]:
    """The kernels of each step as CUPTI saw them; NCCL's on a track of their own."""
    training = Training(world, lambda world, gpt: ours(world.whole, gpt), hidden)
    for _ in range(UNTIMED):
        training.step()
    while True:
        world.whole.barrier()
        torch.cuda.synchronize(world.device)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            training.step()
            torch.cuda.synchronize(world.device)
        spans = []
        for event in profile.events() or []:
            if event.device_type.name == "CUDA":
                track = "communication" if "nccl" in event.name.lower() else "compute"
                begin, end = event.time_range.start / 1e6, event.time_range.end / 1e6
                spans.append(Span(f"rank {world.rank} {track}", event.name, begin, end))
        yield spans


def hidden_share(spans: Iterable[Span]) -> float:
    """The share of a rank's time with a collective under way in which it computed, too; 0 to 1.

    Raises:
        ValueError: no collective was under way at all.
    """
    ordered = sorted((span.start_s, span.end_s, span.track) for span in spans)
    under_way = _union([s[:2] for s in ordered if s[2].endswith("communication")])
    computing = _union([s[:2] for s in ordered if s[2].endswith("compute")])
    total = sum(end - begin for begin, end in under_way)
    if not total:
        raise ValueError("no collective was under way in this step")
    both = sum(
        max(0.0, min(transfer[1], computation[1]) - max(transfer[0], computation[0]))
        for transfer in under_way
        for computation in computing
    )
    return both / total


def _union(ascending: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals as few that don't touch."""
    few: list[tuple[float, float]] = []
    for begin, end in ascending:
        if few and begin <= few[-1][1]:
            few[-1] = (few[-1][0], max(few[-1][1], end))
        else:
            few.append((begin, end))
    return few
