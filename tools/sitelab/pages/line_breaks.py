"""Keeps together what a browser would break: numbers, intervals, formulas, a command's options.

A unit has a no-break space before it; what is longer stands in a span that doesn't break, because
a browser breaks a line after a dash whatever follows. A formula that KaTeX draws is a block of its
own in docs/assets/stylesheets/formulas.css.

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
_BREAKABLE_SPACE = re.compile(f"{_THOUSANDS}|{_UNIT}")
_END = r"[−-]?\d[\d.,\xa0]*(?<!,)(?:\xa0?(?:[%×]|[^\W\d_]{1,3}(?:/s)?))?"  # of an interval
_INTERVAL = rf"\[{_END}, {_END}\]|(?<![\w.,]){_END} – {_END}"
# Numbers and names of one or two letters, with an index, brackets and a fraction's line.
_OPERAND = r"[(\[√]*[−±]?(?:\d[\d.,]*|[^\W\d_]{1,2})[₀-₉⁰¹²³⁴-⁹′!%×]*[)\]]*(?:/[\w(]{1,3}[)\]]*)?"
_FORMULA = rf"(?<![\w,.])(?<!B/){_OPERAND}(?: [−+·×÷/=<>≤≥≈] {_OPERAND})+(?![\w²₀-₉])"
_WHOLE = re.compile(f"({_INTERVAL}|{_FORMULA})")
_LONGEST = 32  # characters that a telephone's line has room for
_OPENING, _CLOSING = "([«“¿¡", ",.;:!?)]»”…"
_BLOCK = ["language-bash", "highlight"]
_OPTION = re.compile(r"((?<![\w-])--?[A-Za-z][\w-]*)")


def mark_long_cells(page: Element) -> None:
    """Put `data-long` on each cell of the page whose text is long."""
    for cell in page.descendants():
        if cell.tag == "td" and len(cell.text()) >= LONG:
            cell.attributes["data-long"] = ""


def make_numbers_nonbreaking(page: Element) -> None:
    """Put intervals and short formulas into spans that don't break; join numbers and units."""

    def join(text: str) -> Sequence[Element | str]:
        return _split(_BREAKABLE_SPACE.sub("\N{NO-BREAK SPACE}", text), _WHOLE)

    page.replace_texts(join, _SKIPPED_TAGS)


def join_punctuation(page: Element) -> None:
    """Put each formula, code and link to code into a span with the punctuation that touches it."""
    for parent in [page, *page.descendants()]:
        nodes = ["", *parent.children, ""]
        for index, child in enumerate(nodes[1:-1], 1):
            if not isinstance(child, Element) or not _is_whole(child):
                continue
            before, after = (
                text if type(text) is str else "" for text in (nodes[index - 1], nodes[index + 1])
            )
            start = before[len(before.rstrip(_OPENING)) :]
            end = after[: len(after) - len(after.lstrip(_CLOSING))]
            if start:
                nodes[index - 1] = before.removesuffix(start)
            if end:
                nodes[index + 1] = after.removeprefix(end)
            if sides := f"{'joined-start ' * bool(start)}{'joined-end' * bool(end)}".strip():
                parts = [part for part in (start, child, end) if part]
                nodes[index] = Element("span", {"class": sides}, parts)
        parent.children = [node for node in nodes if node != ""]


def _is_whole(element: Element) -> bool:
    """Return whether an element is an inline formula, code, or a link to code alone."""
    if element.tag == "a" and len(element.children) == 1:
        return isinstance(code := element.children[0], Element) and _is_whole(code)
    return element.tag == "code" or element.attributes.get("class") == "formula"


def make_options_nonbreaking(page: Element) -> None:
    """Put each option in code font into a span that doesn't break, except in blocks of output."""
    for child in page.children:
        if not isinstance(child, Element):
            continue
        line = child.tag == "code" and not child.attributes
        if (line and child.plain_text()) or child.classes == _BLOCK:
            child.replace_texts(lambda text: _split(text, _OPTION), frozenset())
        elif child.tag != "pre":
            make_options_nonbreaking(child)


def _split(text: str, whole: re.Pattern[str]) -> Sequence[Element | str]:
    return [
        Element("span", {"class": "whole"}, [part]) if index % 2 and len(part) <= _LONGEST else part
        for index, part in enumerate(whole.split(text))
        if part
    ]
