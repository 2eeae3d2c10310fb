"""The version of our own analysis code, which is part of the keys of cached results."""

import os
import sys
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from notelab import __version__

_HERE = Path(__file__).parent
# A cached result depends on the file's content and on the code in these folders.
_FOLDERS = ("book", "cited", "lab", "page", "rules")


@cache
def code_version(*folders: str) -> str:
    """Return a digest of the modules in some of our folders; by default, those that analyse files.

    The digest includes the Python version, because Python's own parser reads the cited files.
    """
    digest = blake2b(f"{__version__} {sys.version_info[:2]}".encode(), digest_size=16)
    for folder in folders or _FOLDERS:
        with suppress(OSError):  # an installation without sources changes only as a whole
            for name in sorted(os.listdir(_HERE / folder)):  # noqa: PTH208 (half of glob's time)
                if name.endswith(".py"):
                    digest.update(blake2b((_HERE / folder / name).read_bytes()).digest())
    return digest.hexdigest()
