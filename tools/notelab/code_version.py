"""Which version of our own analysis made a cached result."""

import os
import sys
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from notelab import __version__

_HERE = Path(__file__).parent
# What is remembered by content depends on the content, and on the code in these.
_FOLDERS = ("book", "cited", "lab", "page", "rules")


@cache
def code_version(*folders: str) -> str:
    """Return a digest of the modules in folders of ours; by default, of what analyses files.

    The interpreter's version is in it too: it parses the cited Python.
    """
    digest = blake2b(f"{__version__} {sys.version_info[:2]}".encode(), digest_size=16)
    for folder in folders or _FOLDERS:
        with suppress(OSError):  # an installation without sources changes only as a whole
            for name in sorted(os.listdir(_HERE / folder)):  # noqa: PTH208 (half of glob's time)
                if name.endswith(".py"):
                    digest.update(blake2b((_HERE / folder / name).read_bytes()).digest())
    return digest.hexdigest()
