"""Numbers that pages quote from RESULTS, brought up to a new reference.

A quoted number is a link to its row; its text must be the row's value (N402). A new reference
changes values, so the links' texts are rewritten here. Whether a sentence is still true is its
author's to say: the changes are listed to be read.
"""

import re
from collections.abc import Iterator
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
        if found := list(_changes(page, text, values)):
            page.write_text(_QUOTE.sub(partial(_now, page, values), text), "utf-8")
            changes += found
    return changes


def _changes(page: Path, text: str, values: dict[Path, dict[str, str]]) -> Iterator[Change]:
    for number, line in enumerate(text.split("\n"), start=1):
        for quote in _QUOTE.finditer(line):
            if (after := _value(page, values, quote)) not in (None, quote[1]):
                yield Change(page, number, quote[3], quote[1], after or "")


def _now(page: Path, values: dict[Path, dict[str, str]], quote: re.Match[str]) -> str:
    value = _value(page, values, quote)
    return quote[0] if value is None else f"[{value}]({quote[2]}#{quote[3]})"


def _value(page: Path, values: dict[Path, dict[str, str]], quote: re.Match[str]) -> str | None:
    return values.get((page.parent / quote[2]).resolve(), {}).get(quote[3])
