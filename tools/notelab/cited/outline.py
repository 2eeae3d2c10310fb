"""The outline of a cited file: its symbols, its statements and the names on each line.

An outline is computed once and cached by blob id. A file whose language has no reader, or whose
reader can't parse it, has only lines and the names on them. Text is decoded as UTF-8, or as the
encoding that a Python file declares.
"""

import codecs
import io
import re
import sys
import tokenize
from codecs import BOM_UTF8

import msgspec

from notelab.cited.structure import CLASS, FUNCTION, Rows, Structure, Symbol
from notelab.errors import NotelabError
from notelab.lines import is_anchor, names_in, split_lines

__all__ = ["CLASS", "FUNCTION", "Outline", "Symbol", "of_file"]


PYTHON = (".py", ".pyi")
# Only encodings that editors write are read. A declaration may also name other codecs (`punycode`,
# `unicode_escape`), and some of these take quadratic time or create line feeds.
_WRITTEN = re.compile(r"utf-8|ascii|iso8859|latin|cp\d|koi8|mac|gb|big5|euc|shift|johab|tis-|hp-")


class UndecodedError(NotelabError):
    """A file can't be decoded as its language would decode it; the message says why."""


def text_of(path: str, data: bytes) -> str:
    """Return a file's text with the line feeds of its bytes, and without a byte order mark.

    Raises:
        UndecodedError: a Python file isn't in the encoding that it declares, or that encoding is
            not supported.
    """
    if not path.endswith(PYTHON):
        return as_utf8(data)
    try:
        declared, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if not _WRITTEN.match(codecs.lookup(declared).name):
            raise UndecodedError(f"it declares the encoding {declared}, which is not read here")
        text = data.decode(declared)
    except (SyntaxError, LookupError) as fault:  # the encoding is unknown or is no text encoding
        raise UndecodedError(f"its encoding can't be read ({fault})") from None
    except UnicodeError as fault:
        raise UndecodedError(f"it is not in the encoding that it declares ({fault})") from None
    if text.count("\n") != data.count(b"\n"):
        raise UndecodedError(f"in the encoding that it declares, {declared}, its lines differ")
    return text


def as_utf8(data: bytes) -> str:
    """Decode bytes as UTF-8 without a byte order mark; invalid bytes are replaced."""
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """The facts about a file that the citation rules use.

    `names` holds one string for each line, from line 1 on, with that line's names separated by
    spaces; the cache decodes one string a line far faster than a list. `structured` says whether
    the file was parsed; if it wasn't, only lines and names are known. `groups` are described in
    cited/structure.py. `unread` says why a file wasn't parsed although its language has a reader.
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
        """Return the names on the lines from `first` to `last`, both included."""
        return set(" ".join(self.names[first - 1 : last]).split())

    def innermost(self, first: int, last: int) -> Symbol | None:
        """Return the smallest symbol that contains all the lines, or None for the module."""
        enclosing = (
            symbol for symbol in self.symbols if symbol.first <= first and last <= symbol.last
        )
        return min(enclosing, key=lambda symbol: symbol.last - symbol.first, default=None)


def of_file(path: str, data: bytes) -> Outline:
    """Return the outline of a file's bytes; this function never raises."""
    unread = ""
    try:
        text = text_of(path, data)
    except UndecodedError as fault:
        text, unread = as_utf8(data), str(fault)
    lines = split_lines(text)
    structure = unread or _structure(path, data, text, lines)
    names = [" ".join(dict.fromkeys(filter(is_anchor, names_in(line)))) for line in lines]
    if isinstance(structure, str):
        return Outline(len(lines), False, [], [], [], [], [], names, structure)
    return Outline(
        len(lines),
        True,
        structure.symbols,
        sorted(structure.starts),
        sorted(structure.ends),
        sorted(set(structure.statements)),
        structure.groups,
        names,
    )


def _structure(path: str, data: bytes, text: str, lines: list[str]) -> Structure | str:
    """Return a file's structure, or why it has none ('' if its language has no reader)."""
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
    return grammars.structure(path, bare, lines) or "its grammar is not installed, or failed"
