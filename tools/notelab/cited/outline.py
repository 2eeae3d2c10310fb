"""The structure of a cited file: its symbols, its statements, which names stand where.

Computed once and kept by blob id. A file in a language that has no reader here (or that its
reader can't parse) has only lines, and the names on them.
"""

import sys
from codecs import BOM_UTF8

import msgspec

from notelab.cited.decoding import PYTHON, UndecodedError, as_utf8, text_of
from notelab.cited.names import is_anchor, names_in
from notelab.cited.structure import CLASS, FUNCTION, Rows, Structure, Symbol
from notelab.lines import split_lines

__all__ = ["CLASS", "FUNCTION", "Outline", "Symbol", "is_anchor", "of_file"]


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """What the citation rules ask of a file. `names` has the names of each line, spaced,
    from line 1 on: one string a line is read back from the cache far faster than a list.

    `structured` says whether the file's language was read; without, only lines and names are known.
    `groups` are described in cited/structure.py. `unread` says why a file has no structure although
    its language is one that is read here.
    """

    lines: int
    structured: bool
    symbols: list[Symbol]
    starts: list[int]
    ends: list[int]
    statements: list[Rows]
    groups: list[list[Rows]]
    names: list[str]
    unread: str = ""

    def names_between(self, first: int, last: int) -> set[str]:
        """Return the names that stand in the lines, inclusive."""
        return set(" ".join(self.names[first - 1 : last]).split())

    def innermost(self, first: int, last: int) -> Symbol | None:
        """Return the smallest symbol that holds all the lines; None is the module."""
        holding = (one for one in self.symbols if one.first <= first and last <= one.last)
        return min(holding, key=lambda one: one.last - one.first, default=None)


def of_file(path: str, data: bytes) -> Outline:
    """Return the outline of a file's bytes; never raises."""
    unread = ""
    try:
        text = text_of(path, data)
    except UndecodedError as fault:
        text, unread = as_utf8(data), str(fault)
    lines = split_lines(text)
    made = unread or _structure(path, data, text, lines)
    names = [" ".join(dict.fromkeys(filter(is_anchor, names_in(line)))) for line in lines]
    if isinstance(made, str):
        return Outline(len(lines), False, [], [], [], [], [], names, made)
    return Outline(
        len(lines),
        True,
        made.symbols,
        sorted(made.starts),
        sorted(made.ends),
        sorted(set(made.statements)),
        made.groups,
        names,
    )


def _structure(path: str, data: bytes, text: str, lines: list[str]) -> Structure | str:
    """Return a file's structure, else why it has none: '' where nobody here knows its language."""
    if path.endswith(PYTHON):
        from notelab.cited import python

        version = ".".join(map(str, sys.version_info[:2]))
        try:
            return python.structure(text, lines)
        except SyntaxError as fault:
            line = f"line {fault.lineno} of it" if fault.lineno else "it"
            return f"Python {version} can't parse {line} ({fault.msg})"
        except (ValueError, LookupError, RecursionError, MemoryError) as fault:
            return f"Python {version} can't parse it ({type(fault).__name__})"
    from notelab.cited import grammars

    if not grammars.knows(path):
        return ""
    bare = data.removeprefix(BOM_UTF8)
    return grammars.structure(path, bare, lines) or "its grammar is not installed, or can't cope"
