"""What the rounds of the tensor-parallel step say: times, paired ratios, and the step's parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from costlab.contestants import tutor
from costlab.record.result import How, Metric
from costlab.sections.beside_sweep import Calls
from costlab.sections.timed import Detail, by_rounds, ratio, timed

PARTS = ("matmul", "latency", "volume", "launch", "other")
MEASURED = ("matmul", "latency", "communication", "launch")
ALONE = ("one", "one-all-cores")
# Other libraries' contestants, and what their ids say.
LIBRARIES = {"megatron-core": "megatron-core", "dtensor": "torch-dtensor"}
Times = Mapping[str, Sequence[float]]


def metrics(
    hidden: int, times: Times, ranks: int, *, backend: str = "gloo", calls: Calls | None = None
) -> Iterator[Metric]:
    """What one size's times say; ids end in `.tp4` for four ranks."""
    start, end = f"tp.h{hidden}", "" if ranks == 2 else f".tp{ranks}"
    about: Detail = {
        "ranks": ranks, "batch": tutor.BATCH, "sequence": tutor.SEQUENCE, "layers": tutor.LAYERS,
    }  # fmt: skip
    links = [link for link in (backend, "shared-memory") if link in times]
    for name in (*ALONE, *links):
        if name in times:
            yield timed(f"{start}.step.shardlab.{name}{end}", times[name], **about)
    for name, code in LIBRARIES.items():
        if name in times:
            yield timed(f"{start}.step.{code}.{backend}{end}", times[name], **about)
            which = f"{start}.ratio.shardlab.{code}.{backend}{end}"
            yield ratio(which, times[backend], times[name])
    yield from _speedups(start, end, times, links, about)
    if "matmul" in times:
        ends = f"{start}.", f".shardlab.{backend}{end}"
        yield from breakdown(*ends, times, times[backend], ranks=ranks, calls=calls or {})


def _speedups(
    start: str, end: str, times: Times, links: Sequence[str], about: Detail
) -> Iterator[Metric]:
    """Two ranks over one process: kept to one thread as each of them, and given them all."""
    one, every = (times.get(name) for name in ALONE)
    if every and one:
        yield ratio(f"{start}.speedup-of-threads.shardlab{end}", one, every, **about)
    for link in links:
        if one:
            yield ratio(f"{start}.speedup.shardlab.{link}{end}", one, times[link], **about)
            yield ratio(f"{start}.slowdown.shardlab.{link}{end}", times[link], one, **about)
        if every:
            which = f"{start}.speedup-over-threads.shardlab.{link}{end}"
            yield ratio(which, every, times[link], **about)


def breakdown(
    start: str, end: str, times: Times, step: Sequence[float], *, ranks: int, calls: Calls
) -> Iterator[Metric]:
    """The parts of the step over the backend's link, round by round, and their shares of it.

    Args:
        start, end: of the ids, with the part between them.
        times: of the parts.
        step: the whole step's times, of the same rounds.
        ranks: how many took part.
        calls: the step's collectives.
    """
    found = {part: times[part] for part in MEASURED}
    found["volume"] = _less(found["communication"], found["latency"])
    found["other"] = _less(step, *(found[part] for part in ("matmul", "communication", "launch")))
    for part, seconds in found.items():
        how: How = "measured" if part in MEASURED else "derived"
        detail: Detail = dict(calls) if part == "communication" else {}
        yield by_rounds(f"{start}part.{part}{end}", seconds, "s", how=how, ranks=ranks, **detail)
    for part in PARTS:
        shares = [a / b for a, b in zip(found[part], step, strict=True)]
        yield by_rounds(f"{start}share.{part}{end}", shares, "ratio")
    cut = zip(times["matmul-whole"], times["matmul"], strict=True)
    efficiency = [whole / (ranks * mine) for whole, mine in cut]
    yield by_rounds(f"{start}cut-efficiency{end}", efficiency, "ratio", ranks=ranks)


def _less(whole: Sequence[float], *parts: Sequence[float]) -> list[float]:
    """What is left of each round's time."""
    return [one - sum(taken) for one, *taken in zip(whole, *parts, strict=True)]
