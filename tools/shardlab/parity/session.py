"""Run the cases of a subject one after another, within a time, and explain the first that fails.

Its ranks are processes that stay: each runs one function after another, until one of them fails.
A new process that imports torch costs seconds, a message to a running one milliseconds. If a rank
raises, the others may wait in a collective for ever, so all are killed, and the next call starts
new ones.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import pickle
import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from shardlab.comm import World
from shardlab.comm.exit_reason import describe_exit
from shardlab.parity.case import Case, ParityError, say, shrink
from shardlab.parity.diagnose import Finding, compare, find_fault, find_wrong_shape
from shardlab.parity.preflight import Reference, train_alone
from shardlab.parity.ranks import RATE, train_on_ranks
from shardlab.parity.subject import Subject

PRELOAD = ("torch._dynamo", "shardlab.parity.ranks")  # an optimizer imports torch._dynamo


class Answer(NamedTuple):
    """What came of a call on one rank.

    Attributes:
        kind: "returned", "raised", "died" or "late".
        value: what the function returned; a traceback, or a sentence.
    """

    kind: str
    value: Any


def join(port: int, rank: int, size: int, timeout: float) -> World:
    """Join the other workers over gloo, with one thread."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, size, is_master=False)  # type: ignore[attr-defined]
    # More ranks than cores: over gloo, eight ranks wait for 224 messages of one all-reduce.
    link = "torch" if size <= 4 else "shared-memory"
    return World.join(backend="gloo", store=store, rank=rank, size=size, timeout=timeout, link=link)


class Workers:
    """Processes of one world, started at the first call.

    Args:
        size: the number of ranks.
        join: makes a worker's world of (port of the store, rank, size, *settings).
        settings: further arguments of `join`.
        preload: modules that the processes are forked with.
    """

    def __init__(
        self, size: int, *, join: Callable[..., World] = join, settings: Sequence[Any] = (60.0,),
        preload: Sequence[str] = PRELOAD,
    ) -> None:  # fmt: skip
        """Note the settings."""
        self.size, self._join, self._settings = size, join, settings
        self._context = multiprocessing.get_context("forkserver")
        self._preload = [*preload]
        self._workers: list[Any] = []
        self._pipes: list[Any] = []

    def call(self, body: Callable[..., Any], *args: Any, timeout: float) -> list[Answer]:
        """Run `body(world, *args)` on every rank; return the answers in rank order."""
        if not self._workers:
            self._start()
        message = pickle.dumps((body, args))
        for pipe in self._pipes:
            pipe.send_bytes(message)
        answers = self._collect(timeout)
        if any(answer.kind != "returned" for answer in answers):
            self.stop()
            return answers
        return [Answer("returned", pickle.loads(answer.value)) for answer in answers]  # noqa: S301

    def stop(self) -> None:
        """Kill the workers; the next call starts new ones."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.join()
        for pipe in self._pipes:
            pipe.close()
        self._workers, self._pipes = [], []

    def _start(self) -> None:
        self._context.set_forkserver_preload(self._preload)
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", 0, self.size, is_master=True, wait_for_workers=False
        )
        for rank in range(self.size):
            pipe, end = self._context.Pipe()
            args = (end, self._join, self._store.port, rank, self.size, *self._settings)
            worker = self._context.Process(target=_work, args=args, daemon=True)
            worker.start()
            end.close()
            self._workers.append(worker)
            self._pipes.append(pipe)

    def _collect(self, timeout: float) -> list[Answer]:
        """Collect an answer of each rank; once one has failed, wait one second for the others."""
        end = time.monotonic() + timeout
        answers: dict[int, Answer] = {}
        while missing := [rank for rank in range(self.size) if rank not in answers]:
            ready = multiprocessing.connection.wait(
                [self._pipes[rank] for rank in missing], max(0.0, end - time.monotonic())
            )
            if not ready:
                break
            for rank in (rank for rank in missing if self._pipes[rank] in ready):
                try:
                    answers[rank] = Answer(*self._pipes[rank].recv())
                except EOFError:
                    self._workers[rank].join(1.0)
                    ending = describe_exit(self._workers[rank].exitcode)
                    answers[rank] = Answer("died", f"the process {ending}")
                if answers[rank].kind != "returned":
                    end = min(end, time.monotonic() + 1.0)
        late = Answer("late", f"no answer within {timeout:.0f} s, or after another failed")
        return [answers.get(rank, late) for rank in range(self.size)]


def _work(pipe: Any, join: Callable[..., World], *place: Any) -> None:
    """Run one function after another; join the world before the first."""
    world = None
    while True:
        try:
            body, args = pickle.loads(pipe.recv_bytes())  # noqa: S301
        except EOFError:
            return
        try:
            world = world or join(*place)
            torch.manual_seed(0)
            pipe.send(("returned", pickle.dumps(body(world, *args))))
        except BaseException:
            pipe.send(("raised", traceback.format_exc()))


@dataclass
class Result:
    """One case that was run.

    Attributes:
        case: the case.
        differences: each quantity's relative difference from one process.
        finding: what is wrong; None if nothing is.
        refused: why the model can't be built so.
    """

    case: Case
    differences: dict[str, float] = field(default_factory=dict)
    finding: Finding | None = None
    refused: str = ""


class Session:
    """Workers, and what one process computes for each set of options.

    Args:
        subject: the model.
        steps: optimizer steps of each case.
        tolerance: the largest relative difference that counts as equal.
        limit: seconds for one case.
        pools: returns the workers of a number of ranks; by default new ones.
    """

    def __init__(
        self, subject: Subject, *, steps: int = 3, tolerance: float = 1e-9, limit: float = 120.0,
        pools: Callable[[int], Workers] | None = None,
    ) -> None:  # fmt: skip
        """Start nothing yet."""
        self.subject, self.steps, self.tolerance, self.limit = subject, steps, tolerance, limit
        self._workers: dict[int, Workers] = {}  # its own
        self._pools = pools or (lambda ranks: self._workers.setdefault(ranks, Workers(ranks)))
        self._references: dict[str, Reference] = {}

    def run(self, case: Case) -> Result:
        """Run one case.

        Raises:
            ParityError: the model can't be compared, on any grid.
        """
        reference = self._reference(case)
        answers = self._call(case.ranks, train_on_ranks, case, reference, self.steps)
        if failed := [(r, a) for r, a in enumerate(answers) if a.kind != "returned"]:
            rank, answer = next(((r, a) for r, a in failed if a.kind == "raised"), failed[0])
            lost = answer.kind == "late" or "The backend said" in answer.value
            cause = say("cause", "collectives" if lost else "raised")
            what = f"rank {rank} {answer.kind}: {_last_line(answer)}"
            return Result(case, finding=Finding("error", "", what, cause))
        traces = [answer.value for answer in answers]
        if refused := next((trace.refused for trace in traces if trace.refused), ""):
            return Result(case, refused=refused)
        if finding := find_wrong_shape(reference, traces):
            return Result(case, finding=finding)
        off = compare(reference, traces, case)
        return Result(case, off, find_fault(reference, traces, case, off, self.tolerance))

    def explain(self, failed: Result, deadline: float) -> Result:
        """Return the smallest case that still fails."""
        for smaller in shrink(failed.case, self.subject.supports):
            if time.monotonic() > deadline:
                break
            if smaller != failed.case and (result := self.run(smaller)).finding:
                return self.explain(result, deadline)
        return failed

    def close(self) -> None:
        """End the workers."""
        for workers in self._workers.values():
            workers.stop()

    def _call(self, ranks: int, body: Callable[..., Any], *args: Any) -> Sequence[Answer]:
        return self._pools(ranks).call(body, self.subject, *args, timeout=self.limit)

    def _reference(self, case: Case) -> Reference:
        key = repr((case.options, case.reduction))
        if key not in self._references:
            answer = self._call(1, train_alone, case, self.steps, RATE)[0]
            if answer.kind != "returned":
                raise ParityError(_last_line(answer))
            self._references[key] = answer.value
        return self._references[key]


def _last_line(answer: Answer) -> str:
    """Return a traceback's error without its module's name, and of ours the message alone."""
    line = answer.value.strip().splitlines()[-1].strip()
    return re.sub(r"^(?:\w+\.)+(?=\w+:)(?:ParityError: )?", "", line)
