"""`shardbook lock`."""

from pathlib import Path

from notelab.book.relock import Relocked, path_of, relock
from notelab.book.view import shown
from notelab.book.workbook import Bench, Workbook, open_labs
from notelab.errors import NotelabError
from notelab.lab import lock as lock_file
from notelab.whole_files import write_together


def lock(folders: list[Path], bench: Bench) -> tuple[list[str], bool]:
    """Write the labs' locks anew; return what was done, and whether some citation was left out.

    Raises:
        NotelabError: a lab.toml or an old lock can't be read, or a new one can't be written.
    """
    lines: list[str] = []
    skipped = False
    for book in open_labs(dict.fromkeys(folders), bench):
        made = relock(book)
        lines += _written(book, made)
        skipped = skipped or bool(made.skipped)
    return lines, skipped


def _written(book: Workbook, made: Relocked) -> list[str]:
    path = path_of(book)
    text = lock_file.dump(made.lock)
    count = sum(len(known) for known in made.lock.citations.values())
    files = sum(len(source.files) for source in made.lock.sources.values())
    lines = [f"not locked: `{text}`: {reason}" for text, reason in made.skipped]
    lines += made.remarks
    said = f"{shown(path)}: {count} citations of {files} files"
    if path.exists() and path.read_text("utf-8") == text:
        return [*lines, f"{said}, as it was"]
    try:
        write_together({path: text.encode()})
    except OSError as fault:
        raise NotelabError(f"{shown(path)}: cannot be written: {fault.strerror}") from None
    return [*lines, said]
