"""Whether something else ran on the cores while a round was measured.

/proc/stat says how long the cores worked, each process how long it did itself: what the ranks did
not do, somebody else did, another program or the hypervisor for another machine (*steal*).
Interrupts are left out: loopback's are the ranks' own. A round in which somebody else had more
than `SHARE` of the cores is dropped and another one measured, up to as many again as were wanted;
where too few are left, all are kept, and the result says so.

/proc/pressure/cpu says how long some task had to wait for a core. Ranks and gloo's threads that
share few cores wait for each other, so it is told and not judged by.

A run has a budget of time. When a part's share of it is spent, the part keeps the rounds that it
has, at least `LEAST`, and its `Load` says how many are missing.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from costlab.record.provenance import cores
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
LEAST = 2  # rounds that are measured even if the time is up
BUSY = 0.10  # of the cores' time, used by other programs before a run
WATCHED = 0.5  # seconds before a run in which other programs are watched
_PROC = Path("/proc")
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


def _worked(kinds: tuple[int, ...] = _KINDS) -> float:
    try:
        lines = _STAT.read_text().splitlines()
        allowed_cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):  # another system than Linux
        return float("nan")
    rows = [line.split()[1:] for line in lines if line.partition(" ")[0] in allowed_cores]
    ticks = sum(int(row[kind]) for row in rows for kind in kinds if kind < len(row))
    return ticks / os.sysconf("SC_CLK_TCK") if rows else float("nan")


def _waited() -> float:
    try:
        some = _PRESSURE.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):  # no such account, or it is turned off
        return float("nan")


class OtherPrograms(NamedTuple):
    """What other programs use of the cores before a run: a share in all, and the largest users."""

    share: float
    programs: list[tuple[str, float]]

    @property
    def busy(self) -> bool:
        """Whether they use so much that times say little."""
        return self.share > BUSY

    def describe(self) -> str:
        """Name what uses the cores, in one line."""
        names = ", ".join(f"{name} {share:.0%}" for name, share in self.programs[:4])
        users = f" ({names})" if names else ""
        return (
            f"this machine is busy: other programs use {self.share:.0%} of its cores{users}; "
            "close them, or don't quote the times"
        )


def watch_others(seconds: float = WATCHED) -> OtherPrograms:
    """Watch for a moment, in which this process sleeps, what uses the cores."""
    before, processes, stolen = reading(), _processes(), _worked((7,))
    time.sleep(seconds)
    after = reading()
    available = (after.at - before.at) * cores()
    used = dict[str, float]()
    for number, (name, worked) in _processes().items():
        earlier = processes.get(number, (name, 0.0))[1]
        if number != os.getpid():
            used[name] = used.get(name, 0.0) + worked - earlier
    used["other virtual machines"] = _worked((7,)) - stolen
    foreign = after.worked - before.worked - (after.own_process - before.own_process)
    if math.isnan(foreign):  # another system than Linux
        return OtherPrograms(0.0, [])
    largest = sorted(used.items(), key=lambda item: -item[1])
    programs = [(name, spent / available) for name, spent in largest if spent > 0.02 * available]
    return OtherPrograms(min(1.0, foreign / available), programs)


def _processes() -> dict[int, tuple[str, float]]:
    """Return each process's name, made printable, and the seconds of a core that it has used."""
    found = dict[int, tuple[str, float]]()
    for stat in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
            text = stat.read_text(errors="replace")
            begin, end = text.index("(") + 1, text.rindex(")")
            fields = text[end + 2 :].split()
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            name = "".join(letter if letter.isprintable() else "?" for letter in text[begin:end])
            found[int(stat.parent.name)] = name, seconds
    return found


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
    """Watches rounds that all ranks measure together; every rank comes to the same verdicts.

    Args:
        world: the ranks.
        until: the moment of `time.perf_counter()` at which their time is up.
    """

    def __init__(self, world: World, until: float = math.inf) -> None:
        from shardlab.comm.host import (
            ProcessInfo,  # it imports torch, which a reader of results lacks
        )

        self._world = world
        self._rounds: list[Round] = []
        self._until, self._time_is_up, self._wanted = until, False, 0
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
        local = torch.tensor(
            [[self._host, float(cores()), *passed, float(after.at > self._until)]],
            dtype=torch.float64,
            device=self._world.device,
        )
        rows = self._world.whole.all_gather(local).tolist()
        self._time_is_up = any(row[-1] for row in rows)  # the same on all ranks
        return of_hosts([row[:-1] for row in rows])

    @property
    def drawn(self) -> int:
        """How many rounds there were."""
        return len(self._rounds)

    @property
    def clean(self) -> int:
        """How many rounds nobody disturbed."""
        return sum(not round_.spoiled for round_ in self._rounds)

    def enough(self, wanted: int) -> bool:
        """Whether there are as many clean rounds as wanted, too many that are not, or no time."""
        self._wanted = wanted
        time_is_up = self._time_is_up and len(self._rounds) >= LEAST
        return self.clean >= wanted or len(self._rounds) >= 2 * wanted or time_is_up

    @property
    def cut_short(self) -> bool:
        """Whether rounds were still wanted when the time was up."""
        ended = self.clean >= self._wanted or len(self._rounds) >= 2 * self._wanted
        return self._time_is_up and not ended

    def progress(self, wanted: int) -> str:
        """Say how far the rounds are: "round 3 of 18, 2 disturbed"."""
        spoiled = len(self._rounds) - self.clean
        return f"round {self.clean} of {wanted}" + (f", {spoiled} disturbed" if spoiled else "")

    def select_clean(self, least: int, values: Sequence[T]) -> list[T]:
        """Return the values of the clean rounds; of all, where fewer than `least` are clean."""
        everything = self.clean < self._least(least)
        pairs = zip(values, self._rounds, strict=True)
        return [value for value, round_ in pairs if everything or not round_.spoiled]

    def _least(self, least: int) -> int:
        """Return how many clean rounds are enough: when the time is up, fewer are."""
        return min(least, LEAST) if self.cut_short else least

    def load(self, least: int) -> Load:
        """Sum the rounds up, of which at least so many should be clean."""
        # NaN says that the load isn't known.
        observed = [round_ for round_ in self._rounds if round_.foreign == round_.foreign]
        spoiled = len(self._rounds) - self.clean
        busy = self.clean < self._least(least)
        kept = len(self._rounds) if busy else self.clean
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
            missing_rounds=max(0, self._wanted - kept) if self.cut_short else 0,
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
    facts |= {
        "got": load.rounds - load.dropped, "missing": load.missing_launches,
        "wanted": load.rounds - load.dropped + load.missing_rounds,
    }  # fmt: skip
    cuts = {"cut-rounds": load.missing_rounds, "cut-launches": load.missing_launches}
    parts = [words, *(texts("disturbed")[name] for name, missing in cuts.items() if missing)]
    en, es = ("; ".join(part.of(language) for part in parts) for language in ("en", "es"))
    return Words(en.format(**facts), es.format(**facts))
