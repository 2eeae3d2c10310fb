"""The structure of a cited file: its symbols, its statements, which names stand where.

Computed once and kept by blob id. A file in a language that has no reader here (or that its
reader can't parse) has only lines, and the names on them.
"""

import msgspec

from notelab.cited.names import is_anchor, names_in
from notelab.cited.structure import CLASS, FUNCTION, Rows, Structure, Symbol

__all__ = ["CLASS", "FUNCTION", "Outline", "Symbol", "is_anchor", "of_file", "split_lines"]


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """What the citation rules ask of a file. `names` has the names of each line, spaced,
    from line 1 on: one string a line is read back from the cache far faster than a list.

    `structured` says whether the file's language was read; without, only lines and names are known.
    `groups` are described in cited/structure.py.
    """

    lines: int
    structured: bool
    symbols: list[Symbol]
    starts: list[int]
    ends: list[int]
    statements: list[Rows]
    groups: list[list[Rows]]
    names: list[str]

    def names_between(self, first: int, last: int) -> set[str]:
        """Return the names that stand in the lines, inclusive."""
        return set(" ".join(self.names[first - 1 : last]).split())

    def innermost(self, first: int, last: int) -> Symbol | None:
        """Return the smallest symbol that holds all the lines; None is the module."""
        holding = (one for one in self.symbols if one.first <= first and last <= one.last)
        return min(holding, key=lambda one: one.last - one.first, default=None)


def split_lines(data: bytes) -> list[bytes]:
    """Split a file into its lines as git and an editor count them."""
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def of_file(path: str, data: bytes) -> Outline:
    """Return the outline of a file's bytes; never raises."""
    lines = [line.decode("utf-8", "replace") for line in split_lines(data)]
    names = [" ".join(dict.fromkeys(filter(is_anchor, names_in(line)))) for line in lines]
    made = _structure(path, data, lines)
    if made is None:
        return Outline(len(lines), False, [], [], [], [], [], names)
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


def _structure(path: str, data: bytes, lines: list[str]) -> Structure | None:
    if path.endswith((".py", ".pyi")):
        from notelab.cited import python

        try:
            return python.structure(data.decode("utf-8"), lines)
        except UnicodeDecodeError:
            return None
    from notelab.cited import grammars

    return grammars.structure(path, data, lines) if grammars.knows(path) else None
