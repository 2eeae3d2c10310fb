"""Why a collective did not finish: which rank is missing or raised an exception, and where.

A backend reports a dead peer as a closed connection and a stopped peer as a timeout, and names
neither. The ranks share a key-value store. A rank that gives up writes there in which operation. If
a rank has written nothing by the end of a short grace period, the state of its process (dead,
stopped, alive) is reported instead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from shardlab.comm.host import ProcessInfo, state_of
from shardlab.comm.pending import CollectiveError


class Store(Protocol):
    """The calls of torch's stores that are used here."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Read the value of a key that exists."""

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys exist, without waiting."""


class FailureReporter:
    """Writes to the store why this rank failed, and reads why its peers did.

    Args:
        store: the key-value store that the ranks share.
        rank: this rank.
        size: the number of ranks.
        grace: seconds to wait for the reports of peers whose processes are alive.
    """

    def __init__(self, store: Store, rank: int, size: int, *, grace: float = 2.0) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._grace = grace
        self._reported = False
        self._process = ProcessInfo.current()
        store.set(f"place/{rank}", self._process.to_json())

    def all_on_this_host(self) -> bool:
        """Return whether every rank runs on this rank's host; waits until all have joined."""
        processes = (
            ProcessInfo.from_json(self._store.get(f"place/{rank}")) for rank in range(self._size)
        )
        return all(process.same_host(self._process) for process in processes)

    def report(self, cause: str) -> None:
        """Write the cause of this rank's failure; only the first call writes."""
        if self._reported:
            return
        self._reported = True
        with contextlib.suppress(RuntimeError):  # the store may have died with its host
            self._store.set(f"fault/{self._rank}", cause)

    def exchange(self, key: str, ranks: Sequence[int], text: str, timeout: float) -> dict[int, str]:
        """Write this rank's text under a key; return the texts of the ranks that wrote in time."""
        self._store.set(f"{key}/{self._rank}", text)
        return self._collect(ranks, timeout, key)

    def explain(
        self, operation: str, members: Iterable[int], error: BaseException
    ) -> CollectiveError:
        """Return an error that names the failed ranks, to raise in place of the backend's.

        Waits up to the grace period for the reports of peers that are alive. The process group
        can't be used afterwards.

        Args:
            operation: what this rank was doing, such as "all_reduce on the data axis [0, 1]".
            members: the ranks of the group.
            error: the backend's error.
        """
        self.report(f"gave up in {operation}")
        peers = [rank for rank in members if rank != self._rank]
        outside = [r for r in range(self._size) if r not in {*peers, self._rank}]
        lines = [f"rank {self._rank}: {operation} did not finish."]
        try:
            reports = self._collect(peers, self._grace)
            peer_lines = [
                self._describe_member(rank, reports.get(rank), operation) for rank in peers
            ]
            outside_lines = [
                f"rank {r} {w}" for r, w in self._collect(outside, 0).items() if _is_cause(w)
            ]
            lines += [f"  {line}" for line in [*peer_lines, *outside_lines] if line]
            if len(lines) == 1:
                lines.append("  Every other rank gave up too, in the same place.")
        except RuntimeError:
            lines.append("  The ranks' store is gone, and with it the process that held it.")
        text = str(error) or repr(error)
        lines.append(f"  The backend said: {text.splitlines()[0]}")
        return CollectiveError("\n".join(lines))

    def _describe_member(self, rank: int, report: str | None, operation: str) -> str:
        """Describe a member's failure; "" if it gave up in the same operation as this rank."""
        if report is None:
            return f"rank {rank} {self._describe_process(rank)}"
        if _is_cause(report):
            return f"rank {rank} {report}"
        return "" if report == f"gave up in {operation}" else f"rank {rank} {report}, not here"

    def _describe_process(self, rank: int) -> str:
        """Describe the process of a rank that has written no report."""
        process = self._process_of(rank)
        if process is None:
            return "never joined"
        if not process.same_host(self._process):
            return f"died, is stopped or hangs (process {process.pid} on {process.host})"
        states = {"dead": "died", "stopped": "is stopped", "alive": "hangs elsewhere, or is late"}
        return f"{states[state_of(process.pid)]} (process {process.pid})"

    def _process_of(self, rank: int) -> ProcessInfo | None:
        key = f"place/{rank}"
        return ProcessInfo.from_json(self._store.get(key)) if self._store.check([key]) else None

    def _collect(
        self, ranks: Sequence[int], timeout: float, prefix: str = "fault"
    ) -> dict[int, str]:
        """Return the reports under a prefix; waits for ranks that may still write theirs."""
        end = time.monotonic() + timeout
        reports: dict[int, str] = {}
        while True:
            for rank in ranks:
                key = f"{prefix}/{rank}"
                if rank not in reports and self._store.check([key]):
                    reports[rank] = self._store.get(key).decode()
            missing = [rank for rank in ranks if rank not in reports]
            if time.monotonic() >= end or not any(self._may_still_report(rank) for rank in missing):
                return reports
            time.sleep(0.01)

    def _may_still_report(self, rank: int) -> bool:
        process = self._process_of(rank)
        return not (
            process and process.same_host(self._process) and state_of(process.pid) != "alive"
        )


def _is_cause(report: str) -> bool:
    return not report.startswith("gave up")
