"""What takes over a second says what it is; what is quick says nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS = 1.0


@contextmanager
def told_if_slow(tell: Callable[[str], None], what: str) -> Iterator[None]:
    """Tell `what` is being done, if the block is still running after a second."""
    timer = threading.Timer(_SECONDS, tell, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
