"""A file at one commit, and a citation in such a file."""

import re
from collections import Counter
from functools import cached_property
from math import log

import msgspec

from notelab.cited.outline import Outline, Symbol
from notelab.repin.enclosing import Chain, describe_chain, enclosing_chains

TOKEN = re.compile(r"[^\W_]+|[^\w\s]")


class WordWeights(dict[str, float]):
    """The weight of each word in a file: high for rare words, almost 0 for words on every line."""

    def __init__(self, lines: list[str]) -> None:
        """Count on how many lines each word is; weights are computed when they are needed."""
        super().__init__()
        self._on = Counter(word for line in lines for word in set(TOKEN.findall(line)))
        self._lines = len(lines)
        self._read: dict[str, tuple[float, list[str]]] = {}

    def __missing__(self, word: str) -> float:
        rarity = log((self._lines + 1) / (self._on[word] + 1)) + 0.05
        self[word] = weight = rarity if word[0].isalnum() else rarity / 4
        return weight

    def weigh_line(self, text: str) -> tuple[float, list[str]]:
        """Return the weight of a line, and its words."""
        if text not in self._read:
            words = TOKEN.findall(text)
            self._read[text] = sum(self[word] for word in words), words
        return self._read[text]


class Version:
    """A file at one commit."""

    def __init__(self, path: str, blob: str, lines: list[bytes], outline: Outline) -> None:
        """Store the content; what is derived from it is computed once, when it is needed."""
        self.path, self.blob, self.raw, self.outline = path, blob, lines, outline

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines as text."""
        return [line.decode("utf-8", "replace") for line in self.raw]

    @cached_property
    def conditions(self) -> list[Chain]:
        """Return the chain of enclosing conditions of each line."""
        return enclosing_chains(self.path, self.lines)

    @cached_property
    def word_weights(self) -> WordWeights:
        """Return the weights of the words in this file."""
        return WordWeights(self.lines)

    def symbols_named(self, name: str) -> list[Symbol]:
        """Return the symbols with a full name; an overload and a setter share theirs."""
        return [symbol for symbol in self.outline.symbols if symbol.name == name]

    def symbols_by_base_name(self, base: str) -> list[Symbol]:
        """Return the symbols with a base name, whatever encloses them."""
        return [symbol for symbol in self.outline.symbols if base_name(symbol.name) == base]


def base_name(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


class CitedLines(msgspec.Struct, dict=True):
    """A citation in an old file: its lines, and the names that anchor it."""

    old: Version
    first: int
    last: int
    anchors: list[str]

    @cached_property
    def symbol(self) -> Symbol | None:
        """Return the innermost symbol around the lines, or None for the module."""
        return self.old.outline.innermost(self.first, self.last)

    @property
    def symbol_name(self) -> str:
        """Return the name of that symbol, or '' for the module."""
        return self.symbol.name if self.symbol else ""

    def has_same_context(self, new: Version, first: int, last: int) -> bool:
        """Return whether new lines are in the same symbol and under the same conditions."""
        symbol = new.outline.innermost(first, last)
        is_same_symbol = self.symbol_name == (symbol.name if symbol else "")
        rows = zip((self.first, self.last), (first, last), strict=True)
        chains = (
            (self.old.conditions[old_row - 1], new.conditions[new_row - 1])
            for old_row, new_row in rows
        )
        return is_same_symbol and all(
            describe_chain(old_chain) == describe_chain(new_chain)
            for old_chain, new_chain in chains
        )
