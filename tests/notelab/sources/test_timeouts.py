"""Progress: said of what takes long, and of nothing else; and an end to what takes for ever."""

import os
import threading
import time
from pathlib import Path

import pytest

from notelab.sources.answers import SourceError
from notelab.sources.git.git_command import _RUNNING, GitCommand
from notelab.sources.timeouts import progress_if_slow, run_all, run_within, start

LONG = 5  # seconds that a test waits for an event before it fails


def test_what_takes_long_is_told_while_it_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notelab.sources.timeouts._PROGRESS_SECONDS", 0)
    reported, reports = threading.Event(), list[str]()

    def tell(text: str) -> None:
        reports.append(text)
        reported.set()

    with progress_if_slow(tell, "reading"):
        assert reported.wait(LONG)
    assert reports == ["reading"]


def test_what_is_over_before_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notelab.sources.timeouts._PROGRESS_SECONDS", LONG)
    reports: list[str] = []
    with progress_if_slow(reports.append, "reading"):
        pass
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(LONG / 2)
            assert not thread.is_alive()
    assert reports == []


def test_what_gives_no_answer_in_time_is_given_up_and_named() -> None:
    never = threading.Event()
    try:
        with pytest.raises(SourceError, match=r"the index gave no complete answer in 0\.01 s"):
            run_within(0.01, "the index", never.wait)
    finally:
        never.set()


def test_a_fault_of_the_work_is_the_waiters() -> None:
    def fails() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run_within(LONG, "the index", fails)
    with pytest.raises(TimeoutError, match="its own"):
        start(fails).result(LONG)


def test_works_are_done_at_the_same_time() -> None:
    meeting = threading.Barrier(2)
    run_all([lambda: meeting.wait(LONG)] * 2)


def test_an_interrupt_ends_the_git_processes_of_all_works(tmp_path: Path) -> None:
    statuses: list[int] = []
    ended = threading.Event()
    # git itself waits for a writer: a child of git could outlive it, and hold its pipes.
    os.mkfifo(never_written := tmp_path / "never-written")

    def run_git() -> None:
        statuses.append(GitCommand(None).run("config", "--file", str(never_written), "-l").status)
        ended.set()

    def interrupt() -> None:
        while not _RUNNING:
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([interrupt, run_git])
    assert ended.wait(LONG)
    assert statuses != [0]
