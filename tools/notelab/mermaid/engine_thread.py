"""Runs an engine in a thread of its own, so that Ctrl-C works while a slow diagram is parsed.

Python handles a signal in the main thread, and only between two of its own instructions. A script
that runs for seconds in the main thread would delay the signal; waiting for a queue does not.
"""

import threading
import time
from queue import Empty, SimpleQueue

from notelab.mermaid.diagrams import Parsed
from notelab.mermaid.engine import STACK, Engine

_POLL_SECONDS = 0.2  # a signal is handled between two waits where a wait can't be interrupted
TimedParse = tuple[Parsed, float]


class EngineThread:
    """Parses diagrams one after another. The thread starts at once and ends with the process."""

    def __init__(self) -> None:
        """Start the thread with a stack large enough for the engine."""
        self._texts: SimpleQueue[str] = SimpleQueue()
        self._answers: SimpleQueue[TimedParse | Exception] = SimpleQueue()
        before = threading.stack_size(2 * STACK)
        try:
            threading.Thread(target=self._serve, daemon=True).start()
        finally:
            threading.stack_size(before)

    def parse(self, text: str) -> TimedParse:
        """Return the result for one diagram, and the processor seconds that it took.

        Raises:
            EngineMissing: the engine cannot be started.
        """
        self._texts.put(text)
        while True:
            try:
                answer = self._answers.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer

    def _serve(self) -> None:
        engine: Engine | None = None
        while True:
            text = self._texts.get()
            try:
                engine = engine or Engine()
                began = time.process_time()
                parsed = engine.parse(text)
                self._answers.put((parsed, time.process_time() - began))
            except Exception as fault:  # `parse` raises it in its own thread
                self._answers.put(fault)
