"""`shardbook check -`: checks one document from standard input, which belongs to no lab.

In a git repository its citations are those of the working tree. What only a lab can know is not
checked: its pins and its lock, and which other repositories are sources.
"""

import sys
from pathlib import Path

from notelab.book.parsed_page import parse_text
from notelab.book.workbook import CheckSession, open_views
from notelab.check import check_book
from notelab.errors import NotelabError
from notelab.lab import pages, pins
from notelab.lab.lab import Lab, repository_root
from notelab.lab.lab_file import LabFile, LabTable, NoteTable, SourceTable
from notelab.report.outcome import Report
from notelab.sources.answers import WORKTREE

# Rules that only a lab has, and those about files where there is no repository.
_OF_LABS = {"N210", "N212", "N216", "N602"}
_OF_FILES = {"N203", "N213"}


def check_input(name: str, session: CheckSession, codes: frozenset[str]) -> Report:
    """Check what standard input holds as if it were the file `name` of the current folder.

    Raises:
        NotelabError: `name` leads out of the repository.
    """
    path, root = (Path.cwd() / name).resolve(), repository_root(Path.cwd())
    if not path.is_relative_to(root):
        raise NotelabError(f"{name}: the document must be in this repository")
    has_repository = (root / ".git").exists()
    sources = {"own": SourceTable(pin=pins.HEAD, path=".")} if has_repository else {}
    table = LabTable(title="standard input", quotes=True)
    lab = Lab(Path.cwd(), root, LabFile(table, sources), sources, Path.cwd(), {}, [])
    page = pages.Page(path, name, "en", None, NoteTable(), None, listed=False)
    text = pages.decode(sys.stdin.buffer.read(pages.MAX_BYTES + 1))
    view = parse_text(page, text, session.cache.file_for(root))
    pinned = {source: pins.Pin(source, path, WORKTREE) for source in sources}
    book = open_views(lab, [view], pinned, None, session)
    report = check_book(book, session)
    ignored = _OF_LABS | (set() if has_repository else _OF_FILES)
    report.keep(codes - ignored)
    return report
