"""Finds invisible characters, and characters that change the order in which text is displayed.

A reader who checks a note by eye must see what the checker sees. A name in code font may hold a
zero-width space, and a bidirectional override displays a path backwards.
"""

import re
import unicodedata

from notelab.page.citation import Span
from notelab.page.note import Marker

_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"


def find_hidden_characters(text: str) -> list[Marker]:
    """Return a marker for the first hidden character of each line that has one."""
    if _HIDDEN.search(text) is None:
        return []
    markers = []
    for row, line in enumerate(text.split("\n"), start=1):
        for match in _HIDDEN.finditer(line):
            if match[0] == _JOINER and _joins_emoji(line, match.start()):
                continue
            column = match.start() + 1
            description = f"U+{ord(match[0]):04X} {unicodedata.name(match[0], '')}".strip()
            markers.append(Marker(description, Span(row, column, row, column + 1)))
            break
    return markers


def _joins_emoji(line: str, index: int) -> bool:
    """Return whether a joiner connects two emoji."""
    before = line[:index].rstrip(_EMOJI_STYLE)[-1:]
    neighbours = (before, line[index + 1 : index + 2])
    return all(
        character and unicodedata.category(character) in ("So", "Sk") for character in neighbours
    )
