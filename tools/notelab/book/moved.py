"""Finds lines that the lock knows by their hash and that are at another place now."""

from hashlib import sha256

from notelab.book.evidence import CitedFile
from notelab.lab.lock import LockedCitation


def find_moved_lines(file: CitedFile, locked: LockedCitation, count: int) -> list[int]:
    """Return the first line of each place in a file that has the locked text of `count` lines.

    If the text is at several places, those in the symbol that the lock names come alone.
    """
    lines = file.lines
    rows = [
        row
        for row in range(1, len(lines) - count + 2)
        if sha256(b"\n".join(lines[row - 1 : row - 1 + count]) + b"\n").hexdigest() == locked.sha256
    ]
    if len(rows) < 2 or file.outline is None:
        return rows
    symbols = {row: file.outline.innermost(row, row + count - 1) for row in rows}
    names = {row: symbol.name if symbol else "" for row, symbol in symbols.items()}
    return [row for row in rows if names[row] == locked.symbol] or rows
