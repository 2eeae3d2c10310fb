"""What a results page shows of a row: in its cells, and once for all rows above its table."""

from itertools import takewhile
from typing import NamedTuple


class Shown(NamedTuple):
    """A row's cells by their column's title, and what is said above of every row."""

    cells: dict[str, str]
    said: list[str]

    def says(self, title: str, value: str) -> bool:
        """Return whether the row's `title` is `value`, wherever that stands."""
        return self.cells.get(title) == value or f"{title} {value}" in self.said


def shown(text: str, row: str) -> Shown:
    """Return what a page shows of the row whose anchor is `row`."""
    lines = text.splitlines()
    (at,) = [at for at, line in enumerate(lines) if f'<a id="{row}"' in line]
    table = [*takewhile(lambda line: line.startswith("|"), reversed(lines[: at + 1]))]
    above = lines[at - len(table) - 1]
    titles, *_, cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in (table[-1], table[0])
    ]
    said = above.partition(": ")[2].rstrip(".").split(", ")
    return Shown(dict(zip(titles, cells, strict=True)), said)
