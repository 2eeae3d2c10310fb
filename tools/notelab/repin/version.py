"""A file at one commit, and a citation where it stands in one."""

import re
from collections import Counter
from functools import cached_property
from math import log

import msgspec

from notelab.cited.outline import Outline, Symbol
from notelab.repin.enclosing import Chain, around, said

TOKEN = re.compile(r"[^\W_]+|[^\w\s]")


class Weighing(dict[str, float]):
    """How much each word tells in a file: rare ones much, those on every line next to nothing."""

    def __init__(self, lines: list[str]) -> None:
        """Count on how many lines each word stands; it is weighed when it is first asked for."""
        super().__init__()
        self._on = Counter(word for line in lines for word in set(TOKEN.findall(line)))
        self._lines = len(lines)
        self._read: dict[str, tuple[float, list[str]]] = {}

    def __missing__(self, word: str) -> float:
        rare = log((self._lines + 1) / (self._on[word] + 1)) + 0.05
        self[word] = weight = rare if word[0].isalnum() else rare / 4
        return weight

    def line(self, text: str) -> tuple[float, list[str]]:
        """Return what a line weighs, and its words."""
        if text not in self._read:
            words = TOKEN.findall(text)
            self._read[text] = sum(self[word] for word in words), words
        return self._read[text]


class Version:
    """A file at one commit."""

    def __init__(self, path: str, blob: str, lines: list[bytes], outline: Outline) -> None:
        """Take the bytes; what is made of them is made once, when it is first asked for."""
        self.path, self.blob, self.raw, self.outline = path, blob, lines, outline

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines as text."""
        return [line.decode("utf-8", "replace") for line in self.raw]

    @cached_property
    def conditions(self) -> list[Chain]:
        """Return what encloses each line."""
        return around(self.path, self.lines)

    @cached_property
    def weighing(self) -> Weighing:
        """Return how much each word tells here."""
        return Weighing(self.lines)

    def named(self, name: str) -> list[Symbol]:
        """Return the symbols of a name: an overload and a setter share theirs."""
        return [one for one in self.outline.symbols if one.name == name]

    def called(self, own: str) -> list[Symbol]:
        """Return the symbols whose own name it is, whatever they stand in."""
        return [one for one in self.outline.symbols if own_name(one.name) == own]


def own_name(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


class Cited(msgspec.Struct, dict=True):
    """A citation where it stands: the old file, the lines, the names that anchor it."""

    old: Version
    first: int
    last: int
    anchors: list[str]

    @cached_property
    def inner(self) -> Symbol | None:
        """Return the innermost symbol around it, None for the module."""
        return self.old.outline.innermost(self.first, self.last)

    @property
    def symbol(self) -> str:
        """Return the name of that symbol, '' for the module."""
        return self.inner.name if self.inner else ""

    def stands_in(self, new: Version, first: int, last: int) -> bool:
        """Tell whether new lines stand in the same symbol, under the same conditions."""
        inner = new.outline.innermost(first, last)
        same = self.symbol == (inner.name if inner else "")
        rows = zip((self.first, self.last), (first, last), strict=True)
        chains = ((self.old.conditions[was - 1], new.conditions[now - 1]) for was, now in rows)
        return same and all(said(mine) == said(theirs) for mine, theirs in chains)
