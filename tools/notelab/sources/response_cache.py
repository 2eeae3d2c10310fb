"""Caches answers of remotes: permanent facts for good, and failures for some minutes.

The cache never fails a command: an entry that can't be read or written is asked for again.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from notelab.cache import DiskCache, cache_key, get_decoded

MINUTES = 10  # during which a failure is believed; `shardbook fetch` asks again at once
T = TypeVar("T")


class _Failure(msgspec.Struct, frozen=True):
    at: float
    reason: str


class ResponseCache:
    """Answers of earlier runs, in a folder beside the store.

    Args:
        root: the folder.
        refresh: ignore all earlier answers; new ones are still written.
        now: a clock that returns seconds.
    """

    def __init__(
        self, root: Path | None, *, refresh: bool = False, now: Callable[[], float] = time.time
    ) -> None:
        """Open the cache; nothing is read yet."""
        self._cache, self._refresh, self._now = DiskCache(root), refresh, now

    def get(self, kind: str, key: tuple[str, ...], type: type[T]) -> T | None:
        """Return the value that `put` wrote under the key, or None."""
        return None if self._refresh else get_decoded(self._cache, kind, cache_key(*key), type)

    def put(self, kind: str, key: tuple[str, ...], value: object) -> None:
        """Write an answer that never changes."""
        self._cache.put(kind, cache_key(*key), msgspec.msgpack.encode(value))

    def get_failure(self, *whom: str) -> str:
        """Return why and when asking `whom` failed in the last minutes, or ''."""
        failure = self.get("no", whom, _Failure)
        age = self._now() - failure.at if failure else 0
        if failure is None or not failure.reason or not 0 <= age < MINUTES * 60:
            return ""
        minutes = round(age / 60)
        ago = f"{minutes} min ago" if minutes else "just now"
        return f"{failure.reason}; asked {ago}, `shardbook fetch` asks again"

    def put_failure(self, reason: str, *whom: str) -> None:
        """Record that asking `whom` failed; the reason '' deletes an earlier record."""
        if reason or self._cache.get("no", cache_key(*whom)) is not None:
            self.put("no", whom, _Failure(self._now(), reason))
