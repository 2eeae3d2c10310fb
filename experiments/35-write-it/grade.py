"""Grades what you wrote, on two processes: `python grade.py [linears] [replicas] [unit]`.

One process that holds everything, PyTorch's DDP and its FSDP2 say what is right. Exit status 1
where something is wrong or missing; what is said then is what it comes from.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
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
    from grading.rank import graded

    pipe.send(
        ("ended", graded(rank, part, Path(folder), meeting, lambda *one: pipe.send(("sent", one))))
    )
    pipe.recv()  # a rank that left would break others' collectives; so it stays until it is ended


def grade(part: str, folder: Path = HERE) -> str:
    """Return what is to be said of a part: "right", or what is wrong with it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    heard, pipes, ranks = [Heard(rank) for rank in range(RANKS)], [], []
    with tempfile.TemporaryDirectory() as meeting:
        for rank in range(RANKS):
            ours, theirs = context.Pipe()
            given = (rank, part, str(folder), f"{meeting}/store", theirs)
            ranks.append(context.Process(target=at_rank, args=given, daemon=True))
            ranks[-1].start()
            theirs.close()
            pipes.append(ours)
        try:
            while not (said := verdict(heard)):
                if not listen(heard, pipes, ranks):
                    return late(heard)
        finally:
            for process in ranks:
                process.kill()
                process.join()
    return said


def listen(heard: list[Heard], pipes: list[Any], ranks: list[Any]) -> bool:
    """Hear what ranks have to say next; False: none says anything."""
    waiting = [pipe for pipe, one in zip(pipes, heard, strict=True) if not one.ended]
    ready = wait(waiting, PATIENCE)
    for pipe, one, process in zip(pipes, heard, ranks, strict=True):
        if pipe in ready:
            try:
                kind, what = pipe.recv()
            except EOFError:
                process.join()
                kind, what = (
                    "ended",
                    ("died", f"its process ended, with exit code {process.exitcode}"),
                )
            if kind == "sent":
                one.sent.append(what)
            else:
                one.ended = what
    return bool(ready)


def verdict(heard: list[Heard]) -> str:
    """Return what is to be said, once nothing that is still to come can change it; else ""."""
    if parted := differ(*heard):
        return parted
    if not (ended := [one for one in heard if one.ended]):
        return ""
    # Who ended after the fewest collectives is the cause: the other waits for it, or will.
    order = ("died", "missing", "wrong", "raised", "right")
    first = min(ended, key=lambda one: (len(one.sent), order.index(one.ended[0]), one.rank))
    other = heard[1 - first.rank]
    waits = len(other.sent) > len(first.sent)
    return told(first, other) if waits or other.ended else ""


def told(first: Heard, other: Heard) -> str:
    """Say how it ended, once it is known which rank is the cause."""
    assert first.ended
    kind, words = first.ended
    if kind == "missing":
        return f"still to be written: {words}"
    if kind != "right":
        return f"on rank {first.rank}, {words}"
    if len(other.sent) > len(first.sent):
        return (
            f"rank {other.rank} enters {name(other.sent, len(first.sent))}, and rank {first.rank} "
            "has finished without it: the one would wait for ever. Every rank must enter every "
            "collective; look for an `if` that one of them doesn't take."
        )
    return "right"


def differ(one: Heard, other: Heard) -> str:
    """Say where two ranks entered different collectives; "": nowhere so far."""
    for at, (left, right) in enumerate(zip(one.sent, other.sent, strict=False)):
        if left != right:
            return (
                f"rank {one.rank} enters {name(one.sent, at)}, and rank {other.rank} "
                f"{name(other.sent, at)}: neither would get what it waits for. Every rank must "
                "enter the same collectives, as large, in the same order."
            )
    return ""


def name(sent: list[tuple[str, int]], at: int) -> str:
    """Name a rank's collective."""
    op, payload = sent[at]
    return f"{op} of {payload} B (its collective {at + 1})"


def late(heard: list[Heard]) -> str:
    """Say who was not heard from."""
    one = next(one for one in heard if not one.ended)
    last = f"entered {name(one.sent, -1)}" if one.sent else "sent nothing"
    return (
        f"rank {one.rank} has not answered for {PATIENCE:.0f} s; so far it has {last}. Is there a "
        "loop that doesn't end, or does it wait for something that isn't a collective?"
    )


def main() -> int:
    """Grade, and say how it went; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; or all")
    parts = parser.parse_args().parts or PARTS
    if unknown := sorted({*parts} - {*PARTS}):
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    said = {}
    for part in parts:
        said[part] = grade(part)
        print(f"{part}: {said[part]}", flush=True)
    return 0 if set(said.values()) == {"right"} else 1


if __name__ == "__main__":
    sys.exit(main())
