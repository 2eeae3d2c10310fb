"""Work that is done beside the tests, in a process of its own.

What waits for processes that it launches, or only computes, would leave a core idle while every
other test waits for it. A test that is marked `beside(work=..., of=(...))` finds what `work(*of)`
returned in the fixture `done_beside`. The works of all chosen tests are done one after another,
from this folder's first test on. A work is a module-level function.
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
    """What a test wants done, if anything."""
    mark = item.get_closest_marker("beside")
    return (mark.kwargs["work"], mark.kwargs.get("of", ())) if mark else None


class Beside:
    """The works of a session's tests, and the process that does each of them once.

    Args:
        works: what the tests want done, in their order.
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
        """Return what a work returned, once it is done.

        Raises:
            Failed: (pytest's) it raised, its process ended, or it took too long.
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
        """End what is still running, launches of its own too."""
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
