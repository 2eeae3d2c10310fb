"""Keeps a command's option on one line: a browser may break a line after each hyphen."""

import re
from collections.abc import Sequence

from sitelab.pages.tree import Element

_BLOCK = ["language-bash", "highlight"]
_OPTION = re.compile(r"((?<![\w-])--?[A-Za-z][\w-]*)")


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
