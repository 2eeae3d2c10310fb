"""Run the cases of a subject one after another, within a time, and explain the first that fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardlab.parity.case import Case, ParityError, say, shrink
from shardlab.parity.diagnose import Finding, compare, find_fault, find_wrong_shape
from shardlab.parity.preflight import Reference, train_alone
from shardlab.parity.ranks import RATE, train_on_ranks
from shardlab.parity.subject import Subject
from shardlab.parity.workers import Answer, Workers


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
