"""Keeps together what a browser would break: numbers, intervals, formulas, a command's options.

No-break spaces hold words together, and `white-space` an option, which has no spaces. A formula
that KaTeX draws is a block of its own in docs/assets/stylesheets/formulas.css.

It also marks the cells of tables that hold a sentence: on a telephone their column needs more
width.
"""

import re
from collections.abc import Sequence

from sitelab.pages.tree import Element

LONG = 50  # characters: three lines of a column that is wide enough to read
_NO_BREAK = "\N{NO-BREAK SPACE}"
# Their text is copied or run as it is.
_SKIPPED_TAGS = frozenset({"pre", "code"})
_THOUSANDS = r"(?<=\d) (?=\d{3}(?!\d))"  # as Spanish pages write them
_UNIT = r"(?<=\d) (?=(?:%|[nµm]?s|[kKMGT]i?B(?:/s)?|G|B|px)(?![\w-]))"
_DASH = r"(?<=[\d×%sB]) (?=– \d)|(?<=[\d×%sB] –) (?=\d)"  # an interval's ends
_BREAKABLE_SPACE = re.compile("|".join((_THOUSANDS, _UNIT, _DASH)))
_END = r"[−-]?\d[\d.]*(?:\xa0?[^\s\d\]]{1,4})?"  # of an interval, with its unit
_INTERVAL = rf"\[{_END}, {_END}\]"
# Numbers and names of one or two letters, with an index, brackets and a fraction's line.
_OPERAND = r"[(\[√]*[−±]?(?:\d[\d.,]*|[^\W\d_]{1,2})[₀-₉⁰¹²³⁴-⁹′!%×]*[)\]]*(?:/[\w(]{1,3}[)\]]*)?"
_FORMULA = rf"(?<![\w,.]){_OPERAND}(?: [−+·×÷/=<>≤≥≈] {_OPERAND})+(?![\w²₀-₉])"
_WHOLE = re.compile(f"{_INTERVAL}|{_FORMULA}")
_LONGEST = 24  # characters of a formula that a telephone's line has room for
_BLOCK = ["language-bash", "highlight"]
_OPTION = re.compile(r"((?<![\w-])--?[A-Za-z][\w-]*)")


def mark_long_cells(page: Element) -> None:
    """Put `data-long` on each cell of the page whose text is long."""
    for cell in page.descendants():
        if cell.tag == "td" and len(cell.text()) >= LONG:
            cell.attributes["data-long"] = ""


def make_numbers_nonbreaking(page: Element) -> None:
    """Replace spaces inside numbers, before units and in short formulas by no-break spaces."""

    def join(match: re.Match[str]) -> str:
        return match[0].replace(" ", _NO_BREAK) if len(match[0]) <= _LONGEST else match[0]

    page.replace_texts(
        lambda text: [_WHOLE.sub(join, _BREAKABLE_SPACE.sub(_NO_BREAK, text))], _SKIPPED_TAGS
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
