"""Files written whole: a reader, or whoever comes after an interrupt, has the old or the new."""

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files: all aside first, then each put in place in one step.

    Raises:
        OSError: one of them, which it names, can't be written; then none was touched.
    """
    # Other processes and threads may be writing the same file.
    mark = f"{os.getpid()}.{os.urandom(4).hex()}"
    scratches = {path: path.with_name(f".{path.name}.{mark}.new") for path in contents}
    try:
        for path, data in contents.items():
            if path.is_dir():  # seen before the first is in place
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            scratches[path].write_bytes(data)
        for path, scratch in scratches.items():
            # A reader on another system may hold the old file open, where that forbids it.
            scratch.replace(path)
    except OSError as fault:
        fault.filename, fault.filename2 = str(path), None  # and not the scratch
        raise
    finally:
        for scratch in scratches.values():
            with contextlib.suppress(OSError):
                scratch.unlink()
