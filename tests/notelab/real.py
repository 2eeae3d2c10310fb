"""The real sources at the pins, from this machine's store, clones or network."""

import os
from pathlib import Path

from notelab.book.workbook import CheckSession
from notelab.cache import DiskCache
from notelab.sources.library import Library
from notelab.sources.store import Store, default_root


def real_bench() -> CheckSession:
    """Return a bench on the user's own store, as `make check` uses it."""
    configured = os.environ.get("SHARDBOOK_CACHE")
    root = Path(configured) if configured else default_root()
    library = Library(store=Store(root), mirrors={}, offline=False, progress=lambda _: None)
    return CheckSession(DiskCache(root / "memo"), library)
