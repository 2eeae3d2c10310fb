"""Marks the cells of tables that hold a sentence: on a telephone their column needs more width."""

from sitelab.pages.tree import Element

LONG = 50  # characters: three lines of a column that is wide enough to read


def mark_long_cells(page: Element) -> None:
    """Put `data-long` on each cell of the page whose text is long."""
    for cell in page.descendants():
        if cell.tag == "td" and len(cell.text()) >= LONG:
            cell.attributes["data-long"] = ""
