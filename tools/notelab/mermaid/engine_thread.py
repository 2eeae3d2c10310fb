"""One engine in a thread of its own, so that Ctrl-C need not wait until a slow diagram is parsed.

Python handles a signal in the main thread, and only between two of its own instructions. A script
that runs for seconds would keep the signal waiting; a queue that is waited for doesn't.
"""

import threading
import time
from queue import Empty, SimpleQueue

from notelab.mermaid.engine import STACK, Engine
from notelab.mermaid.parsed import Parsed

_LOOK = 0.2  # seconds between two looks for a signal, where a wait can't be interrupted (Windows)
Timed = tuple[Parsed, float]


class EngineThread:
    """Parses diagrams one after another; the thread starts at once and ends with the process."""

    def __init__(self) -> None:
        """Start the thread, with room for the engine's stack."""
        self._texts: SimpleQueue[str] = SimpleQueue()
        self._answers: SimpleQueue[Timed | Exception] = SimpleQueue()
        before = threading.stack_size(2 * STACK)
        try:
            threading.Thread(target=self._serve, daemon=True).start()
        finally:
            threading.stack_size(before)

    def parse(self, text: str) -> Timed:
        """Return one diagram, parsed, and the seconds of a processor that it took.

        Raises:
            EngineMissing: the engine can't be started.
        """
        self._texts.put(text)
        while True:
            try:
                answer = self._answers.get(timeout=_LOOK)
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
            except Exception as fault:  # raised again where the answer is waited for
                self._answers.put(fault)
