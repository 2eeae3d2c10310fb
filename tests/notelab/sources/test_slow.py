"""Progress: said of what takes long, and of nothing else; and an end to what takes for ever."""

import threading

import pytest

from notelab.sources import slow
from notelab.sources.answers import SourceError
from notelab.sources.in_time import all_of, begin, within
from notelab.sources.slow import told_if_slow

LONG = 60  # seconds that a test waits for an event before it fails


def test_what_takes_long_is_told_while_it_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow, "_SECONDS", 0)
    told, said = threading.Event(), list[str]()

    def tell(text: str) -> None:
        said.append(text)
        told.set()

    with told_if_slow(tell, "reading"):
        assert told.wait(LONG)
    assert said == ["reading"]


def test_what_is_over_before_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow, "_SECONDS", LONG)
    said: list[str] = []
    with told_if_slow(said.append, "reading"):
        pass
    for one in threading.enumerate():
        if isinstance(one, threading.Timer):
            one.join(LONG / 2)
            assert not one.is_alive()
    assert said == []


def test_what_gives_no_answer_in_time_is_given_up_and_named() -> None:
    never = threading.Event()
    try:
        with pytest.raises(SourceError, match=r"the index gave no whole answer in 0\.01 s"):
            within(0.01, "the index", never.wait)
    finally:
        never.set()


def test_a_fault_of_the_work_is_the_waiters() -> None:
    def fails() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        within(LONG, "the index", fails)
    with pytest.raises(TimeoutError, match="its own"):
        begin(fails).result(LONG)


def test_works_are_done_at_the_same_time() -> None:
    meeting = threading.Barrier(2)
    all_of([lambda: meeting.wait(LONG)] * 2)
