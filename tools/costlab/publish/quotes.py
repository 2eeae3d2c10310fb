"""Numbers that pages quote from RESULTS, brought up to a new reference.

A quoted number is a link to its row; its text must be the row's value (N402). A new reference
changes values, so the links' texts are rewritten here. Whether a sentence is still true is its
author's to say: the changes are listed to be read.
"""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from costlab.publish.page import LANGUAGES, name

_ROW = re.compile(r'<a id="([\w.-]+)"></a>\*\*(.+?)\*\*')
_QUOTE = re.compile(r"\[([^\[\]]*)\]\(([^()\s]*RESULTS(?:\.\w+)?\.md)#([\w.-]+)\)")


@dataclass(frozen=True)
class Change:
    """One quoted number that is another now, and where it stands (`line` from 1)."""

    page: Path
    line: int
    row: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} quotes {self.row}: {self.before}, now {self.after}"


def update(lab: Path, pages: list[Path]) -> list[Change]:
    """Rewrite what `pages` quote from `lab`'s RESULTS; return what changed.

    A link to a row that is gone is left as it is: `shardbook check` names it (N401).
    """
    values = {
        (lab / name("RESULTS", language)).resolve(): dict(
            _ROW.findall((lab / name("RESULTS", language)).read_text("utf-8"))
        )
        for language in LANGUAGES
    }
    changes: list[Change] = []
    for page in pages:
        text = page.read_text("utf-8")
        found: list[Change] = []
        written = _QUOTE.sub(partial(_now, page, values, found), text)
        if found:
            page.write_text(written, "utf-8")
            changes += found
    return changes


def _now(
    page: Path, values: dict[Path, dict[str, str]], changes: list[Change], quote: re.Match[str]
) -> str:
    """Return a link with its row's value; note where that is another."""
    before, target, row = quote.groups()
    value = values.get((page.parent / target).resolve(), {}).get(row)
    if value in (None, before):
        return quote[0]
    line = quote.string.count("\n", 0, quote.start()) + 1
    changes.append(Change(page, line, row, before, str(value)))
    return f"[{value}]({target}#{row})"
