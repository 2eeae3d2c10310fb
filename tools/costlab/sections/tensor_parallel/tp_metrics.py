"""What the rounds of the tensor-parallel step say: times, paired ratios, and the step's parts."""

from collections.abc import Iterator, Mapping, Sequence

from costlab.implementations import tutor
from costlab.record.names import Name
from costlab.record.result import How, Metric
from costlab.sections.metrics import Detail, by_rounds, ratio, timed
from costlab.sections.sweep_check import Calls

PARTS = ("matmul", "latency", "volume", "launch", "other")
MEASURED = ("matmul", "latency", "communication", "launch")
ALONE = ("one", "one-all-cores")
# Other libraries' contestants, and what their ids say.
LIBRARIES = {"megatron-core": "megatron-core", "dtensor": "torch-dtensor"}
Times = Mapping[str, Sequence[float]]


def metrics(
    hidden: int, times: Times, ranks: int, *, backend: str = "gloo", calls: Calls | None = None
) -> Iterator[Metric]:
    """What one size's times say; ids tell how many ranks there were, but for two."""
    base = Name("tp", hidden=hidden, code="shardlab", ranks=0 if ranks == 2 else ranks)
    about: Detail = {
        "ranks": ranks, "batch": tutor.BATCH, "sequence": tutor.SEQUENCE, "layers": tutor.LAYERS,
    }  # fmt: skip
    links = [link for link in (backend, "shared-memory") if link in times]
    steps = {name: base.but(of=name) for name in ALONE} | {
        link: base.but(link=link) for link in links
    }
    for name, step in steps.items():
        if name in times:
            yield timed(step.but(what="step"), times[name], **about)
    for name, code in LIBRARIES.items():
        if name in times:
            yield timed(base.but(what="step", code=code, link=backend), times[name], **about)
            which = base.but(what="ratio", over=code, link=backend)
            yield ratio(which, times[backend], times[name])
    yield from _speedups(base, times, links, about)
    if "matmul" in times:
        ours = base.but(link=backend)
        yield from breakdown(ours, times, times[backend], ranks=ranks, calls=calls or {})


def _speedups(base: Name, times: Times, links: Sequence[str], about: Detail) -> Iterator[Metric]:
    """Two ranks over one process: kept to one thread as each of them, and given them all."""
    single, every = (times.get(name) for name in ALONE)
    if every and single:
        yield ratio(base.but(what="speedup-of-threads"), single, every, **about)
    for link in links:
        ours = base.but(link=link)
        if single:
            yield ratio(ours.but(what="speedup"), single, times[link], **about)
            yield ratio(ours.but(what="slowdown"), times[link], single, **about)
        if every:
            yield ratio(ours.but(what="speedup-over-threads"), every, times[link], **about)


def breakdown(
    ours: Name, times: Times, step: Sequence[float], *, ranks: int, calls: Calls
) -> Iterator[Metric]:
    """The parts of the step over the backend's link, round by round, and their shares of it.

    Args:
        ours: whose and of what size.
        times: of the parts.
        step: the whole step's times, of the same rounds.
        ranks: how many took part.
        calls: the step's collectives.
    """
    measured_parts = {part: times[part] for part in MEASURED}
    measured_parts["volume"] = _less(measured_parts["communication"], measured_parts["latency"])
    measured_parts["other"] = _less(
        step, *(measured_parts[part] for part in ("matmul", "communication", "launch"))
    )
    for part, seconds in measured_parts.items():
        how: How = "measured" if part in MEASURED else "derived"
        detail: Detail = dict(calls) if part == "communication" else {}
        which = ours.but(what="part", of=part)
        yield by_rounds(which, seconds, "s", how=how, ranks=ranks, **detail)
    for part in PARTS:
        shares = [a / b for a, b in zip(measured_parts[part], step, strict=True)]
        yield by_rounds(ours.but(what="share", of=part), shares, "share")
    cut = zip(times["matmul-whole"], times["matmul"], strict=True)
    efficiency = [whole / (ranks * seconds) for whole, seconds in cut]
    yield by_rounds(ours.but(what="cut-efficiency"), efficiency, "share", ranks=ranks)


def _less(whole: Sequence[float], *parts: Sequence[float]) -> list[float]:
    """What is left of each round's time."""
    return [
        total - sum(parts_of_round) for total, *parts_of_round in zip(whole, *parts, strict=True)
    ]
