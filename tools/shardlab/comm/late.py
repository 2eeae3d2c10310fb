"""Collectives on GPUs that never end, found and named.

On a GPU `wait` only puts the collective before what is computed next, and the host runs ahead: no
call of ours ever learns that a rank is lost. So a thread looks at what was started, and where
something takes longer than its time it says who is missing and ends the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from shardlab.comm.faults import Witness

EVERY = 0.25  # seconds between two looks


class Late:
    """Looks after a world's collectives.

    Args:
        witness: who knows what became of the others.
        patience: seconds that a collective may take from its start on the host, queue included.
    """

    def __init__(self, witness: Witness, patience: float) -> None:
        self._witness = witness
        self._patience = patience
        # Each work, what it does, who takes part, and when it began.
        self._started: deque[tuple[Any, str, tuple[int, ...], float]] = deque()
        self._over = threading.Event()
        threading.Thread(target=self._look, name="shardlab-late", daemon=True).start()

    def add(self, works: Iterable[Any], doing: str, members: tuple[int, ...]) -> None:
        """Look after works that have just been started."""
        now = time.monotonic()
        self._started.extend((work, doing, members, now) for work in works)

    def close(self) -> None:
        """Look no more."""
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            # The oldest alone: what came after it on another group is seen when this one is done.
            while self._started:
                work, doing, members, at = self._started[0]
                try:
                    if work.is_completed():
                        self._started.popleft()
                        continue
                    if time.monotonic() - at < self._patience:
                        break
                    fault: Exception = TimeoutError(f"not done after {self._patience:g} s")
                except RuntimeError as error:  # the backend found out first
                    fault = error
                if not self._over.is_set():
                    said = self._witness.explain(doing, members, fault)
                    print(said, file=sys.stderr, flush=True)
                    os._exit(1)
