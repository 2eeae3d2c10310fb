"""Reports work that takes longer than a second."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS = 1.0


@contextmanager
def progress_if_slow(report: Callable[[str], None], what: str) -> Iterator[None]:
    """Report `what` is being done if the block still runs after a second."""
    timer = threading.Timer(_SECONDS, report, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
