"""Reads regular files alone, and writes files atomically, and several with a journal.

A pipe, a device or a folder is refused. A reader finds a file's old content or its new content.
A process may be killed between two files. The journal, also written atomically, holds all of them,
and a later run that finds it writes the remaining ones first.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from notelab.errors import NotelabError, display_path

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


JOURNAL = ".shardbook-repin.json"
Files = dict[str, bytes]


def write_with_journal(root: Path, contents: Mapping[Path, bytes]) -> None:
    """Write files below `root`; if this process is killed, `finish_journal` writes the rest.

    Raises:
        NotelabError: a file cannot be written; the next run tries again.
    """
    files = {path.relative_to(root).as_posix(): data for path, data in contents.items()}
    journal = root / JOURNAL
    try:
        write_files({journal: msgspec.json.encode(files)})
        write_files(contents)
        journal.unlink()
    except OSError as fault:
        raise NotelabError(
            f"{display_path(Path(fault.filename))}: cannot be written: {fault.strerror}",
            hint="fix that and run the same command again: it writes the remaining files",
        ) from None


def finish_journal(root: Path) -> list[str]:
    """Write the files that a killed run left unwritten; return their names.

    Raises:
        NotelabError: the file is not a journal that repin wrote.
    """
    journal = root / JOURNAL
    if journal.is_symlink() or not journal.is_file():
        return []
    try:
        files = msgspec.json.decode(journal.read_bytes(), type=Files)
    except msgspec.MsgspecError as fault:
        raise NotelabError(
            f"{display_path(journal)}: not a journal of repin: {fault}",
            hint="restore the pages from git, and delete the journal",
        ) from None
    places = {(root / name).resolve(): data for name, data in files.items()}
    for place in places:  # an untrusted repository may contain a journal
        inside = place.is_relative_to(root.resolve())
        if not inside or ".git" in {part.lower() for part in place.parts}:
            raise NotelabError(
                f"{display_path(journal)}: {display_path(place)} is no file of the workbook; "
                "nothing is written",
                hint="restore the pages from git, and delete the journal",
            )
    write_with_journal(root, places)
    return sorted(files)
