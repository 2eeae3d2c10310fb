"""A table's cell with a sentence in it is marked: on a telephone its column wants some width."""

import re

LONG = 50  # letters: three lines of a column that is wide enough to read
_CELL = re.compile(r"<td((?: style=\"[^\"]*\")?)>(.*?)</td>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def marked(html: str) -> str:
    """Return the page's HTML with `data-long` on each cell whose text is."""
    return _CELL.sub(_marked, html)


def _marked(cell: re.Match[str]) -> str:
    if len(_TAG.sub("", cell[2])) < LONG:
        return cell[0]
    return f"<td data-long{cell[1]}>{cell[2]}</td>"
