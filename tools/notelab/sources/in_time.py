"""Work in a thread that nobody need wait for: what a remote does may take for ever."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from notelab.sources.answers import SourceError

T = TypeVar("T")


def begin(work: Callable[[], T]) -> "Future[T]":
    """Start `work` in a thread of its own, which ends with the process at the latest."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            outcome = work()
        except BaseException as fault:  # whatever it is, it's the waiter's
            future.set_exception(fault)
        else:
            future.set_result(outcome)

    threading.Thread(target=run, daemon=True).start()
    return future


def all_of(works: Sequence[Callable[[], object]]) -> None:
    """Do all of `works` at the same time; whatever ends the wait ends what they run, too."""
    from notelab.sources.git.command import end_all

    begun = [begin(work) for work in works]
    try:
        for one in begun:
            one.result()
    except BaseException:
        end_all()
        raise


def within(seconds: float, what: str, work: Callable[[], T]) -> T:
    """Return what `work` returns, if it does so in time; a server may send a byte a minute.

    Raises:
        SourceError: it took longer; `what` says who was asked.
    """
    future = begin(work)
    try:
        return future.result(timeout=seconds)
    except TimeoutError:
        if future.done():  # its own, not ours
            raise
        raise SourceError(f"{what} gave no whole answer in {seconds:g} s") from None
