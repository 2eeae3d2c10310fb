"""`shardbook lock`."""

from pathlib import Path

from notelab import lock as lock_file
from notelab.errors import NotelabError
from notelab.relock import path_of, relock, write_together
from notelab.view import shown
from notelab.workbook import Bench, open_lab


def lock(folder: Path, bench: Bench) -> tuple[list[str], bool]:
    """Write a lab's lock anew; return what was done, and whether some citation was left out.

    Raises:
        NotelabError: lab.toml or the old lock can't be read, or the new one can't be written.
    """
    book = open_lab(folder, bench)
    made = relock(book)
    path = path_of(book)
    text = lock_file.dump(made.lock)
    count = sum(len(known) for known in made.lock.citations.values())
    files = sum(len(source.files) for source in made.lock.sources.values())
    said = f"{shown(path)}: {count} citations of {files} files"
    lines = [f"not locked: `{text}`: {reason}" for text, reason in made.skipped]
    if path.exists() and path.read_text("utf-8") == text:
        return [*lines, f"{said}, as it was"], bool(made.skipped)
    try:
        write_together({path: text})
    except OSError as fault:
        raise NotelabError(f"{shown(path)}: cannot be written: {fault.strerror}") from None
    return [*lines, said], bool(made.skipped)
