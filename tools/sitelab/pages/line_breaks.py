"""Keeps together what a browser would break: numbers with their units, and a command's options.

It also marks the cells of tables that hold a sentence: on a telephone their column needs more
width.
"""

import re
from collections.abc import Sequence

from sitelab.pages.tree import Element

LONG = 50  # characters: three lines of a column that is wide enough to read
# Their text is copied or run as it is.
_SKIPPED_TAGS = frozenset({"pre", "code"})
_THOUSANDS = r"(?<=\d) (?=\d{3}(?!\d))"  # as Spanish pages write them
_UNIT = r"(?<=\d) (?=(?:%|[nµm]?s|[kKMGT]i?B(?:/s)?|G|B|px)(?![\w-]))"
_DASH = r"(?<=[\d×%sB]) (?=– \d)"  # an interval's first end stays with the dash after it
_BREAKABLE_SPACE = re.compile("|".join((_THOUSANDS, _UNIT, _DASH)))
_BLOCK = ["language-bash", "highlight"]
_OPTION = re.compile(r"((?<![\w-])--?[A-Za-z][\w-]*)")


def mark_long_cells(page: Element) -> None:
    """Put `data-long` on each cell of the page whose text is long."""
    for cell in page.descendants():
        if cell.tag == "td" and len(cell.text()) >= LONG:
            cell.attributes["data-long"] = ""


def make_numbers_nonbreaking(page: Element) -> None:
    """Replace spaces inside the page's numbers, and before units, by no-break spaces."""
    page.replace_texts(
        lambda text: [_BREAKABLE_SPACE.sub("\N{NO-BREAK SPACE}", text)], _SKIPPED_TAGS
    )


def make_options_nonbreaking(page: Element) -> None:
    """Put each option in code font into a span that doesn't break, except in blocks of output."""
    for child in page.children:
        if not isinstance(child, Element):
            continue
        line = child.tag == "code" and not child.attributes
        if (line and child.plain_text()) or child.classes == _BLOCK:
            child.replace_texts(_split, frozenset())
        elif child.tag != "pre":
            make_options_nonbreaking(child)


def _split(text: str) -> Sequence[Element | str]:
    parts = _OPTION.split(text)
    return [
        Element("span", {"class": "option"}, [part]) if index % 2 else part
        for index, part in enumerate(parts)
        if part
    ]
