"""All files or none: what is to be written stands in a journal first, and a killed run is finished.

Each file is put in place in one step, but a kill may fall between two of them. The journal, itself
written in one step, holds all of them; whoever finds one writes the rest before anything else.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from notelab.atomic_write import write_files
from notelab.errors import NotelabError, display_path

JOURNAL = ".shardbook-repin.json"
Files = dict[str, bytes]


def write(root: Path, contents: Mapping[Path, bytes]) -> None:
    """Write files below `root`, all of them even if this process is killed and `finish` is run.

    Raises:
        NotelabError: one of them can't be written; the next run tries again.
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
            hint="mend that and run the same command again: it finishes what was begun",
        ) from None


def finish(root: Path) -> list[str]:
    """Write what a killed run left unwritten; return the names of its files.

    Raises:
        NotelabError: the journal is not one of ours.
    """
    journal = root / JOURNAL
    if journal.is_symlink() or not journal.is_file():
        return []
    try:
        files = msgspec.json.decode(journal.read_bytes(), type=Files)
    except msgspec.MsgspecError as fault:
        raise NotelabError(
            f"{display_path(journal)}: not a journal of repin: {fault}",
            hint="restore the pages from git, and delete it",
        ) from None
    places = {(root / name).resolve(): data for name, data in files.items()}
    for place in places:  # a stranger's repository may hold a journal too
        inside = place.is_relative_to(root.resolve())
        if not inside or ".git" in {part.lower() for part in place.parts}:
            raise NotelabError(
                f"{display_path(journal)}: {display_path(place)} is no file of the workbook; "
                "nothing is written",
                hint="restore the pages from git, and delete it",
            )
    write(root, places)
    return sorted(files)
