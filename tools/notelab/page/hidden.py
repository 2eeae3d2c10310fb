"""Characters that nobody sees, or that show text in another order than it has.

A reader who checks a note by eye must see what the checker sees: a name in code font may hold a
space of no width, and a bidirectional override shows a path backwards.
"""

import re
import unicodedata

from notelab.page.citation import Span
from notelab.page.note import Seen

_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_JOINER, _AS_PICTURE = "\u200d", "\ufe0f"


def found_in(text: str) -> list[Seen]:
    """Return the first hidden character of each line that has one."""
    if _HIDDEN.search(text) is None:
        return []
    found = []
    for row, line in enumerate(text.split("\n"), start=1):
        for one in _HIDDEN.finditer(line):
            if one[0] == _JOINER and _joins_pictures(line, one.start()):
                continue
            at = one.start() + 1
            named = f"U+{ord(one[0]):04X} {unicodedata.name(one[0], '')}".strip()
            found.append(Seen(named, Span(row, at, row, at + 1)))
            break
    return found


def _joins_pictures(line: str, at: int) -> bool:
    """Tell whether a joiner makes one picture of two, as in many an emoji."""
    before = line[:at].rstrip(_AS_PICTURE)[-1:]
    around = (before, line[at + 1 : at + 2])
    return all(one and unicodedata.category(one) in ("So", "Sk") for one in around)
