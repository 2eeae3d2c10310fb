"""Reads a row of a results page: its cells, and the facts that hold for all rows of its table."""

from itertools import takewhile
from typing import NamedTuple


class ShownRow(NamedTuple):
    """A row's cells by the title of their column, and the facts that hold for all rows."""

    cells: dict[str, str]
    common: list[str]

    def says(self, title: str, value: str) -> bool:
        """Return whether the row's `title` is `value`, in its cell or above the table."""
        return self.cells.get(title) == value or f"{title} {value}" in self.common


def read_row(text: str, row: str) -> ShownRow:
    """Return the row whose anchor is `row`."""
    lines = text.splitlines()
    (at,) = [at for at, line in enumerate(lines) if f'<a id="{row}"' in line]
    table = [*takewhile(lambda line: line.startswith("|"), reversed(lines[: at + 1]))]
    above = lines[at - len(table) - 1]
    titles, *_, cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in (table[-1], table[0])
    ]
    common = above.partition(": ")[2].rstrip(".").split(", ")
    return ShownRow(dict(zip(titles, cells, strict=True)), common)
