"""A number stays on one line, with its unit; an interval's first end with the dash behind it."""

import re

from sitelab.pages.tree import Element

# What is copied letter by letter, drawn or run.
_LEFT = frozenset({"pre", "code"})
_THOUSANDS = r"(?<=\d) (?=\d{3}(?!\d))"  # as Spanish pages write them
_UNIT = r"(?<=\d) (?=(?:%|[nµm]?s|[kKMGT]i?B(?:/s)?|G|B|px)(?![\w-]))"
_DASH = r"(?<=[\d×%sB]) (?=– \d)"
_TORN = re.compile("|".join((_THOUSANDS, _UNIT, _DASH)))


def keep_numbers_whole(page: Element) -> None:
    """Put spaces that don't break where a number of the page would be torn."""
    page.replace_texts(lambda text: [_TORN.sub("\N{NO-BREAK SPACE}", text)], _LEFT)
