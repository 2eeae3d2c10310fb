"""Runs work in threads, so that a remote that never answers is not waited for."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from notelab.sources.answers import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future

_PROGRESS_SECONDS = 1.0
T = TypeVar("T")


def start(work: Callable[[], T]) -> "Future[T]":
    """Start `work` in its own daemon thread, which ends with the process at the latest."""
    from concurrent.futures import Future  # imported late: most checks ask no remote

    future: Future[T] = Future()

    def run() -> None:
        try:
            outcome = work()
        except BaseException as fault:  # the waiter gets it
            future.set_exception(fault)
        else:
            future.set_result(outcome)

    threading.Thread(target=run, daemon=True).start()
    return future


def run_all(works: Sequence[Callable[[], object]]) -> None:
    """Run all of `works` at the same time; if waiting is interrupted, end their git processes."""
    futures = [start(work) for work in works]
    try:
        for future in futures:
            future.result()
    except BaseException:
        from notelab.sources.git.git_command import end_all

        end_all()
        raise


def run_within(seconds: float, what: str, work: Callable[[], T]) -> T:
    """Return the result of `work` if it takes at most `seconds`; a server may be endlessly slow.

    Raises:
        SourceError: it took longer; the message begins with `what`.
    """
    future = start(work)
    try:
        return future.result(timeout=seconds)
    except TimeoutError:
        if future.done():  # `work` itself raised TimeoutError
            raise
        raise SourceError(f"{what} gave no complete answer in {seconds:g} s") from None


@contextmanager
def progress_if_slow(report: Callable[[str], None], what: str) -> Iterator[None]:
    """Report `what` is being done if the block still runs after a second."""
    timer = threading.Timer(_PROGRESS_SECONDS, report, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
