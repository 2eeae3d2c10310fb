"""The store: one cache of the user for cited files and for what remotes answered."""

import contextlib
import re
import time
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from typing import TypeVar

import msgspec

from notelab.cache import DiskCache, cache_key, get_decoded
from notelab.files import write_files
from notelab.sources.answers import MAX_FILE_BYTES

MINUTES = 10  # during which a failure is believed; `shardbook fetch` asks again at once
_BLOB = re.compile(r"[0-9a-f]{40}")
T = TypeVar("T")


def blob_id(data: bytes) -> str:
    """Return the git blob id (40 hex digits) of `data`."""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def default_root() -> Path:
    """Return the folder of shardbook among the user's caches."""
    from platformdirs import user_cache_path

    return user_cache_path("shardbook")


class _Failure(msgspec.Struct, frozen=True):
    at: float
    reason: str


class Store:
    """Cited files by their blob ids, and answers of remotes, in a folder.

    Several processes may write at the same time, because each file is written under another name
    and then renamed. If the folder can't be written, nothing is stored and `trouble` says why. A
    damaged entry counts as missing.

    Args:
        root: the folder; nothing is read or created there before it is needed.
        refresh: ignore failures of earlier runs, so that remotes are asked again.
        now: a clock that returns seconds.
    """

    def __init__(
        self, root: Path, *, refresh: bool = False, now: Callable[[], float] = time.time
    ) -> None:
        """Remember the folder."""
        self.root, self.trouble = root, ""
        self._refresh, self._now = refresh, now
        self._answers = DiskCache(root / "answers")

    def get(self, blob: str) -> bytes | None:
        """Return the bytes of `blob`, or None; a damaged file is deleted, to be fetched again."""
        if not _BLOB.fullmatch(blob):  # a lock may hold anything, and a damaged file is deleted
            return None
        place = self._place(blob)
        try:
            with place.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except OSError:
            return None
        if blob_id(data) == blob:
            return data
        with contextlib.suppress(OSError):
            place.unlink()
        return None

    def put(self, data: bytes) -> str:
        """Store `data` if that is possible, and return its blob id."""
        blob = blob_id(data)
        place = self._place(blob)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_files({place: data})
        except OSError as fault:
            self.trouble = (
                f"the store {self.root} cannot be written ({fault.strerror or fault}); "
                "going on without it"
            )
        return blob

    def _place(self, blob: str) -> Path:
        return self.root / "blobs" / blob[:2] / blob[2:]

    def get_answer(self, kind: str, type: type[T], *key: str) -> T | None:
        """Return what `put_answer` stored under the key, or None."""
        return get_decoded(self._answers, kind, cache_key(*key), type)

    def put_answer(self, kind: str, answer: object, *key: str) -> None:
        """Store an answer that never changes."""
        self._answers.put(kind, cache_key(*key), msgspec.msgpack.encode(answer))

    def get_failure(self, *whom: str) -> str:
        """Return why and when asking `whom` failed in the last minutes, or ''."""
        failure = None if self._refresh else self.get_answer("no", _Failure, *whom)
        age = self._now() - failure.at if failure else 0
        if failure is None or not failure.reason or not 0 <= age < MINUTES * 60:
            return ""
        minutes = round(age / 60)
        ago = f"{minutes} min ago" if minutes else "just now"
        return f"{failure.reason}; asked {ago}, `shardbook fetch` asks again"

    def put_failure(self, reason: str, *whom: str) -> None:
        """Store that asking `whom` failed; the reason '' deletes an earlier failure."""
        if reason or self.get_answer("no", _Failure, *whom) is not None:
            self.put_answer("no", _Failure(self._now(), reason), *whom)
