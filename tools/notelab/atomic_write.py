"""Write files atomically: a reader finds its old content or its new content."""

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write several files: first all under temporary names, then each is renamed into place.

    Raises:
        OSError: one of the files, which the error names, cannot be written. No file was changed.
    """
    # Another process or thread may be writing the same file, so the suffix is unique.
    suffix = f"{os.getpid()}.{os.urandom(4).hex()}"
    temporary_paths = {path: path.with_name(f".{path.name}.{suffix}.new") for path in contents}
    try:
        for path, data in contents.items():
            if path.is_dir():  # checked before the first file is replaced
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            temporary_paths[path].write_bytes(data)
            if path.exists():
                temporary_paths[path].chmod(stat.S_IMODE(path.stat().st_mode))
        for path, temporary_path in temporary_paths.items():
            # On some systems this fails while a reader has the old file open.
            temporary_path.replace(path)
    except OSError as fault:
        fault.filename, fault.filename2 = str(path), None  # not the temporary path
        raise
    finally:
        for temporary_path in temporary_paths.values():
            with contextlib.suppress(OSError):
                temporary_path.unlink()
