"""Reads untrusted files: a pipe, a device or a folder is refused."""

import errno
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFDIR: "folder",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFLNK: "symbolic link",
}
_PIECE = 16 * 1024  # a buffer as large as the limit would take longer than a small file
# Opening a pipe waits for its other end, and opening a terminal may make it this process's own.
_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_BINARY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")
)


def kind_of(mode: int) -> str:
    """Return the kind of a file by its mode, or '' if it is a regular file."""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "special file")


def read_regular(path: Path, limit: int, *, mode: int | None = None) -> bytes:
    """Return the first `limit` bytes of a regular file; links are followed.

    A caller that has asked for the file's mode gives it.

    Raises:
        OSError: there is no such file, it cannot be read, or it is not a regular file.
    """
    # Path is slow, and asked for each page.
    _refuse(os.stat(path).st_mode if mode is None else mode, path)  # noqa: PTH116
    handle = os.open(path, _FLAGS)
    try:
        _refuse(os.fstat(handle).st_mode, path)
        pieces, remaining = [], limit
        while remaining and (piece := os.read(handle, min(_PIECE, remaining))):
            pieces.append(piece)
            remaining -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(handle)


def _refuse(mode: int, path: Path) -> None:
    if kind := kind_of(mode):
        raise OSError(errno.EINVAL, f"it is a {kind}, not a file", str(path))
