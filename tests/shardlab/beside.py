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

from tests.shardlab.pool import take_turns

Work = tuple[Callable[..., Any], tuple[Any, ...]]


def work_of(item: pytest.Item) -> Work | None:
    """What a test wants done, if anything."""
    mark = item.get_closest_marker("beside")
    return (mark.kwargs["work"], mark.kwargs.get("of", ())) if mark else None


class Beside:
    """The works of a session's tests, and the process that does them.

    Args:
        works: by the name of the test that wants it, in the order of the tests.
    """

    def __init__(self, works: dict[str, Work]) -> None:
        self._waiting = list(works)
        self._done: dict[str, tuple[str, Any]] = {}
        self._answers, theirs = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.get_context("forkserver").Process(
            target=_do, args=(list(works.values()), theirs)
        )
        self._process.start()
        theirs.close()

    def result(self, name: str, timeout: float = 200.0) -> Any:
        """Return what a test's work returned, once it is done.

        Raises:
            Failed: (pytest's) it raised, its process ended, or it took too long.
        """
        while name not in self._done:
            if not self._answers.poll(timeout):
                pytest.fail(f"not done in {timeout:.0f} s: {self._waiting[0]}", pytrace=False)
            try:
                self._done[self._waiting.pop(0)] = self._answers.recv()
            except EOFError:
                self._process.join()
                code = self._process.exitcode
                pytest.fail(
                    f"{self._waiting[0]}: the process ended (exit code {code})", pytrace=False
                )
        kind, what = self._done[name]
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
