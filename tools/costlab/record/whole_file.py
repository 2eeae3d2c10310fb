"""Writing a file whole or not at all."""

import os
from pathlib import Path


def write(path: Path, content: bytes) -> None:
    """Write a file that a reader sees all of or not; who may read it, the umask says.

    Raises:
        OSError: the folder can't be written, or the disk is full; an older file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
    scratch.unlink(missing_ok=True)
    try:
        with scratch.open("xb") as file:  # not a temporary file, which is nobody else's to read
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
