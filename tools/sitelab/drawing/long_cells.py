"""A table's cell with a sentence in it is marked: on a telephone its column wants some width."""

from sitelab.pages.tree import Element

LONG = 50  # letters: three lines of a column that is wide enough to read


def mark_long_cells(page: Element) -> None:
    """Put `data-long` on each cell of the page whose text is long."""
    for cell in page.below():
        if cell.tag == "td" and len(cell.text()) >= LONG:
            cell.attributes["data-long"] = ""
