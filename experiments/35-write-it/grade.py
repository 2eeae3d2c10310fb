"""Grades what you wrote, on two processes: `python grade.py [linears] [replicas] [unit]`.

One process that holds everything, PyTorch's DDP and its FSDP2 say what is right. Exit status 1
where something is wrong or missing; what is said then is what it comes from.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from grading import RANKS

for needed in ("torch", "shardlab"):  # imported at each rank
    if not importlib.util.find_spec(needed):
        sys.exit(
            f"grade.py: error: this Python has no {needed}: run `make bench-env` once, and "
            "`source .venv/bin/activate` in every terminal"
        )

HERE = Path(__file__).resolve().parent
PARTS = ("linears", "replicas", "unit")
PATIENCE = 60.0  # seconds without a word from any rank
# What the ranks are forked from has imported this once.
IMPORTED = ["torch._dynamo", "torch.distributed.fsdp", "shardlab.proofs.ledger"]


@dataclass
class Heard:
    """What one rank has said: the collectives it entered, as (op, bytes), and how it ended.

    Attributes:
        ended: "right", "missing", "wrong", "raised" or "died", and in which words; None: not yet.
    """

    rank: int
    sent: list[tuple[str, int]] = field(default_factory=list)
    ended: tuple[str, str] | None = None


def at_rank(rank: int, part: str, folder: str, meeting: str, pipe: Connection) -> None:
    """Be a rank; torch is imported here, and the one who waits needs none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the waiting process's to answer
    from grading.rank import graded

    def send(*message: object) -> None:
        pipe.send(("sent", message))

    pipe.send(("ended", graded(rank, part, Path(folder), meeting, send)))
    pipe.recv()  # a rank that left would break others' collectives; so it stays until it is ended


def grade(part: str, folder: Path = HERE) -> tuple[str, list[str]]:
    """Return "right", or what is wrong with a part; and of a right one, what it sent and held."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    heard, pipes, ranks = [Heard(rank) for rank in range(RANKS)], [], []
    with tempfile.TemporaryDirectory() as meeting:
        for rank in range(RANKS):
            ours, child_end = context.Pipe()
            arguments = (rank, part, str(folder), f"{meeting}/store", child_end)
            ranks.append(context.Process(target=at_rank, args=arguments, daemon=True))
            ranks[-1].start()
            child_end.close()
            pipes.append(ours)
        try:
            while not (judgement := verdict(heard)):
                if not listen(heard, pipes, ranks):
                    return late(heard), []
        finally:
            for process in ranks:
                process.kill()
                process.join()
    lines = heard[0].ended[1].splitlines() if judgement == "right" and heard[0].ended else []
    return judgement, lines


def listen(heard: list[Heard], pipes: list[Any], ranks: list[Any]) -> bool:
    """Hear what ranks have to say next; False: none says anything."""
    waiting = [pipe for pipe, rank in zip(pipes, heard, strict=True) if not rank.ended]
    ready = wait(waiting, PATIENCE)
    for pipe, rank, process in zip(pipes, heard, ranks, strict=True):
        if pipe in ready:
            try:
                kind, what = pipe.recv()
            except EOFError:
                process.join()
                code = process.exitcode
                kind, what = "ended", ("died", f"its process ended, with exit code {code}")
            if kind == "sent":
                rank.sent.append(what)
            else:
                rank.ended = what
    return bool(ready)


def verdict(heard: list[Heard]) -> str:
    """Return what is to be said, once nothing that is still to come can change it; else ""."""
    if parted := differ(*heard):
        return parted
    if not (ended := [rank for rank in heard if rank.ended]):
        return ""
    # Who ended after the fewest collectives is the cause: the other waits for it, or will.
    order = ("died", "missing", "wrong", "raised", "right")
    first = min(ended, key=lambda rank: (len(rank.sent), order.index(rank.ended[0]), rank.rank))
    second = heard[1 - first.rank]
    waits = len(second.sent) > len(first.sent)
    return explain(first, second) if waits or second.ended else ""


def explain(first: Heard, second: Heard) -> str:
    """Say how it ended, once it is known which rank is the cause."""
    assert first.ended
    kind, words = first.ended
    if kind == "missing":
        return f"still to be written: {words}"
    if kind != "right":
        return f"on rank {first.rank}, {words}"
    if len(second.sent) > len(first.sent):
        entered = name(second.sent, len(first.sent))
        return (
            f"rank {second.rank} enters {entered}, and rank {first.rank} has finished without it: "
            "it would wait forever. Every rank must enter every collective; look for an `if` that "
            "only one of them takes."
        )
    return "right"


def differ(first: Heard, second: Heard) -> str:
    """Say where two ranks entered different collectives; "": nowhere so far."""
    for at, (sent_first, right) in enumerate(zip(first.sent, second.sent, strict=False)):
        if sent_first != right:
            return (
                f"rank {first.rank} enters {name(first.sent, at)}, and rank {second.rank} "
                f"{name(second.sent, at)}: neither would get what it waits for. Every rank must "
                "enter the same collectives, as large, in the same order."
            )
    return ""


def name(sent: list[tuple[str, int]], at: int) -> str:
    """Name a rank's collective."""
    op, payload = sent[at]
    return f"{op} of {payload} B (its collective {at + 1})"


def late(heard: list[Heard]) -> str:
    """Say who was not heard from."""
    rank = next(rank for rank in heard if not rank.ended)
    last = f"entered {name(rank.sent, -1)}" if rank.sent else "sent nothing"
    return (
        f"rank {rank.rank} has not answered for {PATIENCE:.0f} s; so far it has {last}. Is there a "
        "loop that doesn't end, or does it wait for something that isn't a collective?"
    )


def main() -> int:
    """Grade, and say how it went; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; or all")
    parts = parser.parse_args().parts or PARTS
    if unknown := sorted({*parts} - {*PARTS}):
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    verdicts = {}
    for part in parts:
        verdicts[part], lines = grade(part)
        print(f"{part}: {verdicts[part]}", *lines, sep="\n  ", flush=True)
    return 0 if set(verdicts.values()) == {"right"} else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
