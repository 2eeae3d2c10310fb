"""The store: files kept per user, each under its blob id."""

import contextlib
from pathlib import Path

from notelab.atomic_write import write_files
from notelab.sources.answers import MAX_FILE_BYTES, is_commit
from notelab.sources.blob import blob_id


def default_root() -> Path:
    """Return the folder of the user's caches that is ours."""
    from platformdirs import user_cache_path

    return user_cache_path("shardbook")


class Store:
    """Files under a folder, each read back only if it still is what its name says.

    Several processes may write at once: a file is written aside and put in place in one step.
    Where the folder can't be written the store keeps nothing, and `trouble` says so.
    """

    def __init__(self, root: Path) -> None:
        """Nothing is read or made before `get` or `put`."""
        self.root = root
        self.trouble = ""

    def get(self, blob: str) -> bytes | None:
        """Return the bytes of `blob`, or None; a damaged file is removed, to be fetched again."""
        if not is_commit(blob):  # a lock may hold anything, and a damaged file is removed
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
        """Keep `data` where that is possible, and return its blob id."""
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
