"""A content cache: what was computed from a file's bytes, kept under the hash of those bytes.

Everything in it can be computed again, so nothing here ever fails a command: an entry that can't
be read, or isn't what was written, is no entry; a folder that can't be written keeps nothing.
"""

import contextlib
import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar, cast

_CHECK = 8
T = TypeVar("T")


class Memo:
    """Entries by (kind, key) under one folder."""

    def __init__(self, root: Path | None) -> None:
        """Keep entries under `root`; None keeps nothing."""
        self._root = root
        self._decoded: dict[tuple[str, str], object] = {}

    def once(self, kind: str, key: str, make: Callable[[], T]) -> T:
        """Return what `make` makes, made once in this process; for values that nobody changes."""
        known = self._decoded.get((kind, key))
        if known is None:
            known = self._decoded[kind, key] = make()
        return cast("T", known)

    def get(self, kind: str, key: str) -> bytes | None:
        """Return what was put, or None."""
        if self._root is None:
            return None
        try:
            # Plain strings here: a check of 1,000 notes asks 1,000 times, and Path is slow.
            with open(f"{self._root}/{kind}/{key[:2]}/{key[2:]}", "rb") as stream:  # noqa: PTH123
                data = stream.read()
        except OSError:
            return None
        if data[:_CHECK] != _checksum(data[_CHECK:]):
            return None
        return data[_CHECK:]

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep `data`; a reader sees all of it or nothing."""
        if self._root is None:
            return
        target = self._root / kind / key[:2] / key[2:]
        scratch = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_bytes(_checksum(data) + data)
            scratch.replace(target)
        except OSError:
            pass
        finally:  # on an interrupt too
            with contextlib.suppress(OSError):
                scratch.unlink(missing_ok=True)


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECK).digest()


def key_of(*parts: bytes | str) -> str:
    """Return the key for an ordered list of inputs."""
    digest = blake2b(digest_size=20)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
