"""Work that a background process does while the tests run.

Work that waits for processes that it launches, or only computes, would leave a core idle while
every other test waits for it. A test that is marked `background(work=..., of=(...))` finds what
`work(*of)` returned in the fixture `background_result`. The process does the works of all chosen
tests one after another, from this folder's first test on. A work is a module-level function.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tests.limits import LIMIT
from tests.shardlab.pool import take_turns

Work = tuple[Callable[..., Any], tuple[Any, ...]]


def work_of(item: pytest.Item) -> Work | None:
    """Return the function that the test's marker names and its arguments; None without one."""
    mark = item.get_closest_marker("background")
    return (mark.kwargs["work"], mark.kwargs.get("of", ())) if mark else None


class BackgroundWork:
    """The process that does each work of a session's tests once, and what the works returned.

    Args:
        works: (function, arguments) of the tests, in their order.
    """

    def __init__(self, works: list[Work]) -> None:
        works = list(dict.fromkeys(works))
        self._waiting = list(works)
        self._done: dict[Work, tuple[str, Any]] = {}
        self._answers, child_end = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.get_context("forkserver").Process(
            target=_do, args=(works, child_end)
        )
        self._process.start()
        child_end.close()

    def result(self, work: Work, timeout: float = LIMIT) -> Any:
        """Wait for a work, at most `timeout` seconds, and return what it returned.

        Raises:
            Failed: (pytest's) the work raised, its process ended, or it took too long.
        """
        while work not in self._done:
            if not self._answers.poll(timeout):
                name = self._waiting[0][0].__name__
                pytest.fail(f"{name}: not done in {timeout:.0f} s", pytrace=False)
            try:
                self._done[self._waiting.pop(0)] = self._answers.recv()
            except EOFError:
                self._process.join()
                name, code = self._waiting[0][0].__name__, self._process.exitcode
                pytest.fail(f"{name}: the process ended (exit code {code})", pytrace=False)
        kind, what = self._done[work]
        if kind == "raised":
            pytest.fail(what, pytrace=False)
        return what

    def stop(self) -> None:
        """End the process and the processes that its works launched."""
        pid = self._process.pid
        assert pid is not None
        if self._process.is_alive():
            try:
                os.killpg(pid, signal.SIGTERM)
            except ProcessLookupError:  # it has no group of its own yet, nor launched anything
                self._process.kill()
        self._process.join()
        self._answers.close()


def _do(works: list[Work], answers: Any) -> None:
    import torch

    os.setsid()
    torch.set_num_threads(1)
    take_turns()
    for work, args in works:
        try:
            answers.send(("returned", work(*args)))
        except BaseException:
            answers.send(("raised", traceback.format_exc()))
