"""A command's option stays on one line: a browser may break after each of its hyphens."""

import re
from collections.abc import Sequence

from sitelab.pages.tree import Element

_BLOCK = ["language-bash", "highlight"]
_OPTION = re.compile(r"((?<![\w-])--?[A-Za-z][\w-]*)")


def keep_options_whole(page: Element) -> None:
    """Put each option in code font into a span that doesn't break; blocks of output stay."""
    for child in page.children:
        if not isinstance(child, Element):
            continue
        line = child.tag == "code" and not child.attributes
        if (line and child.plain_text()) or child.classes == _BLOCK:
            child.replace_texts(_split, frozenset())
        elif child.tag != "pre":
            keep_options_whole(child)


def _split(text: str) -> Sequence[Element | str]:
    parts = _OPTION.split(text)
    return [
        Element("span", {"class": "option"}, [part]) if index % 2 else part
        for index, part in enumerate(parts)
        if part
    ]
