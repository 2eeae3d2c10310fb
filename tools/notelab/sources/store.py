"""The store: cited files in a cache of the user, each under its blob id."""

import contextlib
from pathlib import Path

from notelab.atomic_write import write_files
from notelab.sources.answers import MAX_FILE_BYTES, is_commit
from notelab.sources.blob import blob_id


def default_root() -> Path:
    """Return the folder of shardbook among the user's caches."""
    from platformdirs import user_cache_path

    return user_cache_path("shardbook")


class Store:
    """Files in a folder; each is returned only if its contents still have the id in its name.

    Several processes may write at the same time, because each file is written under another name
    and then renamed. If the folder can't be written, nothing is stored and `trouble` says why.
    """

    def __init__(self, root: Path) -> None:
        """Remember the folder; nothing is read or created before `get` or `put`."""
        self.root = root
        self.trouble = ""

    def get(self, blob: str) -> bytes | None:
        """Return the bytes of `blob`, or None; a damaged file is deleted, to be fetched again."""
        if not is_commit(blob):  # a lock may hold anything, and a damaged file is deleted
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
