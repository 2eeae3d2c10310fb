"""Answers kept between runs: for good what never changes, for some minutes that somebody said no.

Nothing here ever fails a command: what can't be read or written is asked for again.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from notelab.cache import DiskCache, cache_key, get_decoded

MINUTES = 10  # for which a no is taken for one; `shardbook fetch` asks again at once
T = TypeVar("T")


class _No(msgspec.Struct, frozen=True):
    at: float
    reason: str


class Kept:
    """What was answered before, in a folder beside the store.

    Args:
        root: the folder.
        anew: ask everybody again, whatever was said before; the new answers are kept.
        now: the time in seconds.
    """

    def __init__(
        self, root: Path | None, *, anew: bool = False, now: Callable[[], float] = time.time
    ) -> None:
        """Nothing is read yet."""
        self._cache, self._anew, self._now = DiskCache(root), anew, now

    def get(self, kind: str, key: tuple[str, ...], type: type[T]) -> T | None:
        """Return what `put` kept under the key, or None."""
        return None if self._anew else get_decoded(self._cache, kind, cache_key(*key), type)

    def put(self, kind: str, key: tuple[str, ...], value: object) -> None:
        """Keep an answer that never changes."""
        self._cache.put(kind, cache_key(*key), msgspec.msgpack.encode(value))

    def refusal(self, *whom: str) -> str:
        """Return why `whom` said no some minutes ago and when, or ''."""
        no = self.get("no", whom, _No)
        age = self._now() - no.at if no else 0
        if no is None or not no.reason or not 0 <= age < MINUTES * 60:
            return ""
        minutes = round(age / 60)
        ago = f"{minutes} min ago" if minutes else "just now"
        return f"{no.reason}; asked {ago}, `shardbook fetch` asks again"

    def refuse(self, reason: str, *whom: str) -> None:
        """Keep that `whom` said no; '' takes it back."""
        if reason or self._cache.get("no", cache_key(*whom)) is not None:
            self.put("no", whom, _No(self._now(), reason))
