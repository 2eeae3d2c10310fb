"""Whether something else ran on the cores while a round was measured.

/proc/stat says how long the cores worked, each process how long it did itself: what the ranks did
not do, somebody else did, another program or the hypervisor for another machine (*steal*).
Interrupts are left out: loopback's are the ranks' own. A round in which somebody else had more
than `SHARE` of the cores is dropped and another one measured, up to as many again as were wanted;
where too few are left, all are kept, and the result says so.

/proc/pressure/cpu says how long some task had to wait for a core. Ranks and gloo's threads that
share few cores wait for each other, so it is told and not judged by.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from costlab.record.quantity import per_cent
from costlab.record.result import Load
from costlab.record.words import Words, texts

if TYPE_CHECKING:
    from shardlab.comm import World

SHARE = 0.05  # of the cores' time
# Seconds of a core that /proc/stat can't tell apart: it counts in hundredths, for each of four
# kinds of work, by who runs when the clock ticks. Two quiet cores gave -0.045 to 0.02 in rounds of
# a quarter of a second.
RESOLUTION = 0.04
_STAT, _PRESSURE = Path("/proc/stat"), Path("/proc/pressure/cpu")
_KINDS = (0, 1, 2, 7)  # user, nice, system and steal, in a line of /proc/stat
T = TypeVar("T")


class Reading(NamedTuple):
    """The accounts of a moment, in seconds; NaN where a system keeps none.

    Attributes:
        at: the clock.
        worked: the cores of this process, for whomever; of all of them together.
        own: this process, on all of its threads.
        waited: some task, for a core.
    """

    at: float
    worked: float
    own_process: float
    waited: float


def reading() -> Reading:
    """Read the accounts."""
    return Reading(time.perf_counter(), _worked(), time.process_time(), _waited())


def _worked() -> float:
    try:
        lines = _STAT.read_text().splitlines()
        allowed_cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):  # another system than Linux
        return float("nan")
    rows = [line.split()[1:] for line in lines if line.partition(" ")[0] in allowed_cores]
    ticks = sum(int(row[kind]) for row in rows for kind in _KINDS if kind < len(row))
    return ticks / os.sysconf("SC_CLK_TCK") if rows else float("nan")


def _waited() -> float:
    try:
        some = _PRESSURE.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):  # no such account, or it is turned off
        return float("nan")


class Round(NamedTuple):
    """One round: seconds of cores that were there, and that somebody else used; of waiting."""

    available: float
    foreign: float
    waited: float

    @property
    def spoiled(self) -> bool:
        """Whether somebody else used more than may be."""
        return self.foreign > SHARE * self.available + RESOLUTION


class NoiseMonitor:
    """Watches rounds that all ranks measure together; every rank comes to the same verdicts."""

    def __init__(self, world: World) -> None:
        from shardlab.comm.host import (
            ProcessInfo,  # it imports torch, which a reader of results lacks
        )

        self._world = world
        self._rounds: list[Round] = []
        card = ProcessInfo.current()
        self._host = float(zlib.crc32(f"{card.host} {card.boot}".encode()))

    @contextlib.contextmanager
    def round(self) -> Iterator[None]:
        """Watch what is measured within; all ranks begin and end together."""
        self._world.whole.barrier()
        before = reading()
        yield
        self._world.whole.barrier()
        self._rounds.append(self._merge_ranks(before, reading()))

    def _merge_ranks(self, before: Reading, after: Reading) -> Round:
        """Put the ranks' accounts together: the most disturbed host's count."""
        import torch

        passed = [end - begin for begin, end in zip(before, after, strict=True)]
        cores = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 1.0
        local = torch.tensor(
            [[self._host, cores, *passed]], dtype=torch.float64, device=self._world.device
        )
        return of_hosts(self._world.whole.all_gather(local).tolist())

    @property
    def drawn(self) -> int:
        """How many rounds there were."""
        return len(self._rounds)

    @property
    def clean(self) -> int:
        """How many rounds nobody disturbed."""
        return sum(not round_.spoiled for round_ in self._rounds)

    def enough(self, wanted: int) -> bool:
        """Whether there are as many clean rounds as wanted, or too many that are not."""
        return self.clean >= wanted or len(self._rounds) >= 2 * wanted

    def progress(self, wanted: int) -> str:
        """Say how far the rounds are: "round 3 of 18, 2 disturbed"."""
        spoiled = len(self._rounds) - self.clean
        return f"round {self.clean} of {wanted}" + (f", {spoiled} disturbed" if spoiled else "")

    def select_clean(self, least: int, values: Sequence[T]) -> list[T]:
        """Return the values of the clean rounds; of all, where fewer than `least` are clean."""
        everything = self.clean < least
        pairs = zip(values, self._rounds, strict=True)
        return [value for value, round_ in pairs if everything or not round_.spoiled]

    def load(self, least: int) -> Load:
        """Sum the rounds up, of which at least so many should be clean."""
        observed = [
            round_ for round_ in self._rounds if round_.foreign == round_.foreign
        ]  # not NaN
        spoiled = len(self._rounds) - self.clean
        busy = self.clean < least
        worst = max(
            (round_.foreign / round_.available for round_ in observed if round_.spoiled),
            default=0.0,
        )
        return Load(
            rounds=len(self._rounds),
            dropped=0 if busy else spoiled,
            spoiled=spoiled if busy else 0,
            unwatched=len(self._rounds) - len(observed),
            core_seconds=round(sum(round_.available for round_ in observed), 3),
            foreign=round(sum(max(0.0, round_.foreign) for round_ in observed), 3),
            waited=round(
                sum(round_.waited for round_ in observed if round_.waited == round_.waited), 3
            ),
            worst_share=round(worst, 3),
        )


def of_hosts(rows: Sequence[Sequence[float]]) -> Round:
    """Return a round of the ranks' rows: host, its cores, seconds, worked, own and waited."""
    rounds = []
    for host in dict.fromkeys(row[0] for row in rows):
        _, cores, seconds, worked, own_process, waited = zip(
            *(row for row in rows if row[0] == host), strict=True
        )
        available = max(cores) * max(seconds)
        rounds.append(Round(available, max(worked) - sum(own_process), max(waited)))
    return max(rounds, key=lambda round_: round_.foreign / round_.available)


def describe(load: Load) -> Words:
    """Return one line about some rounds."""
    named = (("busy", load.spoiled), ("dropped", load.dropped), ("unwatched", load.unwatched))
    words = texts("disturbed")[next((name for name, rounds in named if rounds), "clean")]
    share = load.foreign / load.core_seconds if load.core_seconds else 0.0
    facts = {
        "rounds": load.rounds, "dropped": load.dropped, "spoiled": load.spoiled,
        "unwatched": load.unwatched, "share": per_cent(share), "most": per_cent(load.worst_share),
    }  # fmt: skip
    return Words(words.en.format(**facts), words.es.format(**facts))
