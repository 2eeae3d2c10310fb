"""Keeps a number and its unit on one line, and an interval's first end with the dash after it."""

import re

from sitelab.pages.tree import Element

# Their text is copied or run as it is.
_SKIPPED_TAGS = frozenset({"pre", "code"})
_THOUSANDS = r"(?<=\d) (?=\d{3}(?!\d))"  # as Spanish pages write them
_UNIT = r"(?<=\d) (?=(?:%|[nµm]?s|[kKMGT]i?B(?:/s)?|G|B|px)(?![\w-]))"
_DASH = r"(?<=[\d×%sB]) (?=– \d)"
_BREAKABLE_SPACE = re.compile("|".join((_THOUSANDS, _UNIT, _DASH)))


def make_numbers_nonbreaking(page: Element) -> None:
    """Replace spaces inside the page's numbers, and before units, by no-break spaces."""
    page.replace_texts(
        lambda text: [_BREAKABLE_SPACE.sub("\N{NO-BREAK SPACE}", text)], _SKIPPED_TAGS
    )
