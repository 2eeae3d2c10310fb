"""What a request to end must not cut short: the writing of what was measured."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_REQUESTS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the block is done; may stand within another.

    Where the block raises, the program is on its way out, and the request is forgotten. (A signal
    mask wouldn't do: any thread of gloo's may take the signal, and Python's handler then interrupts
    the main thread all the same.)
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals don't come here
        return
    signals: list[int] = []
    before = {request: signal.getsignal(request) for request in _REQUESTS}
    for request in _REQUESTS:
        signal.signal(request, lambda number, _: signals.append(number))
    try:
        yield
    finally:
        for request, handler in before.items():
            signal.signal(request, signal.SIG_DFL if handler is None else handler)
    if signals:
        signal.raise_signal(signals[0])
