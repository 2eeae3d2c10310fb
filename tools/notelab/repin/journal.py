"""Writes all files or none, even if the process is killed: a journal holds them until it is done.

Each file is replaced atomically, but a process may be killed between two files. The journal, also
written atomically, holds all files. A later run that finds it writes the remaining files first.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from notelab.errors import NotelabError, display_path
from notelab.files import write_files

JOURNAL = ".shardbook-repin.json"
Files = dict[str, bytes]


def write(root: Path, contents: Mapping[Path, bytes]) -> None:
    """Write files below `root`; if this process is killed, `finish` writes the rest.

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


def finish(root: Path) -> list[str]:
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
    write(root, places)
    return sorted(files)
