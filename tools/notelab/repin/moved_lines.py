"""Finds cited lines again by their text alone, in whatever symbol or file the new commit has them.

Git lists the lines that a commit has and an older one lacks at that place. A range that has most of
the distinctive cited lines among these is a proposal. Lines that left a file may be in another one.
"""

import re
from collections.abc import Callable, Iterable
from functools import cached_property

from notelab.cited import grammars
from notelab.cited.outline import PYTHON
from notelab.lines import names_in, split_lines
from notelab.repin.changes import Place
from notelab.repin.proposals import Candidate
from notelab.repin.version import CitedLines, Version, base_name
from notelab.sources.git.git_command import GitCommand

MIN_SHARE = 0.6  # of the distinctive cited lines that a place must have
_MAX_PLACES = 20  # a line that was added more often is as common as `return result`
# Letters and digits, with fewer of which a line is distinctive of nothing.
_DISTINCTIVE = re.compile(r"(?:\w\W*){6}")
_FILE = re.compile(r"\+\+\+ (?:\"?b/(.*?)\"?\t?$)")
_HUNK = re.compile(r"@@ -\S+ \+(\d+)")
_Added = dict[str, dict[int, str]]  # by path, the added rows, and their text without indentation
# By path, each new row with its index in the citation.
_Positions = dict[str, list[tuple[int, int]]]


class MovedLines:
    """The lines that one commit has and another has not, by their text.

    Args:
        read: reads a file at the new commit.
        clone: a clone with both commits, or None.
        commits: the old commit and the new one.
    """

    def __init__(
        self,
        read: Callable[[str], Version | None],
        clone: GitCommand | None,
        commits: tuple[str, str],
    ) -> None:
        """Prepare; git runs only once lines were not found where they are expected."""
        self._read, self._clone, self._commits = read, clone, commits

    @cached_property
    def _added(self) -> _Added | None:
        """Return the added lines, or None if git can't tell."""
        if self._clone is None:
            return None
        ran = self._clone.run(
            *("-c", "core.quotePath=false", "diff", "-U0", "--no-color", "--no-ext-diff"),
            *("--no-textconv", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/"),
            *(*self._commits, "--"),
            timeout=300,
        )
        return None if ran.status else _read_added(ran.out)

    @cached_property
    def _places(self) -> dict[str, list[tuple[str, int]]]:
        """Return the places of each distinctive line that was added."""
        places: dict[str, list[tuple[str, int]]] = {}
        for path, rows in (self._added or {}).items():
            for row, line in rows.items():
                if _is_distinctive(line):
                    places.setdefault(line, []).append((path, row))
        return places

    @cached_property
    def names(self) -> dict[str, frozenset[str]]:
        """Return the names in the added lines of each source file."""
        return {
            path: frozenset(names_in("\n".join(rows.values())))
            for path, rows in (self._added or {}).items()
            if path.endswith(PYTHON) or grammars.knows(path)
        }

    def is_added(self, path: str, row: int) -> bool:
        """Return whether a row of a new file was added."""
        return row in (self._added or {}).get(path, {})

    @property
    def reason(self) -> str:
        """Return what is known of lines that were not found."""
        if self._added is None:
            return "not looked for in other files: that needs a clone with both commits"
        return "found in no file of the new commit"

    def find(self, cited: CitedLines) -> list[Candidate]:
        """Return the place of each file that has most of the cited lines, if it has enough."""
        places = self._places
        lines = [line.strip() for line in cited.old.lines[cited.first - 1 : cited.last]]
        positions: _Positions = {}
        distinctive = 0
        for index, line in enumerate(lines):
            found = places.get(line, [])
            if line not in lines[:index] and _is_distinctive(line) and len(found) <= _MAX_PLACES:
                distinctive += 1
                for path, row in found:
                    positions.setdefault(path, []).append((row, index))
        candidates = []
        for path, rows in positions.items():
            first, last, count = _densest_window(sorted(rows), len(lines))
            version = self._read(path) if count >= MIN_SHARE * distinctive else None
            if version is not None and last[0] <= len(version.lines):
                place = Place(path, *_widen(version, lines, first, last))
                candidates.append(Candidate(0.9 * count / distinctive, count / distinctive, place))
        return candidates


def _read_added(diff: bytes) -> _Added:
    added: _Added = {}
    rows: dict[int, str] = {}
    row = 0
    for line in split_lines(diff.decode("utf-8", "replace")):
        if line.startswith("+"):
            if line.startswith("+++ ") and (match := _FILE.match(line)):
                rows = added.setdefault(match[1], {})
                continue
            if text := line[1:].strip():
                rows[row] = text
            row += 1
        elif line.startswith("@@") and (match := _HUNK.match(line)):
            row = int(match[1])
    return added


def _is_distinctive(line: str) -> bool:
    return _DISTINCTIVE.search(line) is not None


def _densest_window(
    rows: list[tuple[int, int]], size: int
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Return the first and the last position of the window with most of the lines, and how many."""
    max_rows, best = size * 2.5 + 4, (rows[0], rows[0], 0)
    start = 0
    for end, position in enumerate(rows):
        while position[0] - rows[start][0] >= max_rows:
            start += 1
        window = rows[start : end + 1]
        count = len({index for _, index in window})
        if count > best[2]:
            best = window[0], position, count
    return best


def _widen(
    version: Version, lines: list[str], first: tuple[int, int], last: tuple[int, int]
) -> tuple[int, int]:
    """Extend a range over the cited lines around it that are too common to be in the index."""
    (start, index), (end, last_index) = first, last
    while index and start > 1 and version.lines[start - 2].strip() == lines[index - 1]:
        start, index = start - 1, index - 1
    while (
        last_index + 1 < len(lines)
        and end < len(version.lines)
        and version.lines[end].strip() == lines[last_index + 1]
    ):
        end, last_index = end + 1, last_index + 1
    return start, end


_MAX_FILES = 8  # a name that more files define is as common as `forward`
_MAX_READ = 40  # of the files that got a line with the name
ReadVersion = Callable[[str], Version | None]


class OtherFiles:
    """The files of the new commit that may hold what left a file.

    Args:
        read: reads a file at the new commit.
        cited: the cited paths, which are searched if there is no clone.
        clone: a clone with both commits, or None.
        commits: the old commit and the new one.
        moved_lines: the lines that the new commit added.
    """

    def __init__(
        self,
        read: ReadVersion,
        cited: Iterable[str],
        clone: GitCommand | None,
        commits: tuple[str, str],
        moved_lines: MovedLines,
    ) -> None:
        """Prepare; git runs only once a symbol has left its file."""
        self._read, self._cited, self._moved_lines = read, list(cited), moved_lines
        self._clone, self._commits = clone, commits

    @cached_property
    def _renamed(self) -> dict[str, str]:
        """Return the new path of each file that git takes for renamed."""
        if self._clone is None:
            return {}
        command = ("diff-tree", "-r", "-z", "-M", "--name-status", "--diff-filter=R")
        ran = self._clone.run(*command, *self._commits, timeout=300)
        fields = ran.out.decode("utf-8", "replace").split("\0")
        return dict(zip(fields[1::3], fields[2::3], strict=False))

    def find_renamed(self, path: str) -> Version | None:
        """Return the file that a path was renamed to, or None."""
        new_path = self._renamed.get(path)
        return self._read(new_path) if new_path else None

    def find(self, cited: CitedLines) -> list[Version]:
        """Return the files that define the citation's symbol, and did not before."""
        name, path = cited.symbol_name, cited.old.path
        versions: dict[str, Version] = {}
        is_new = self._moved_lines.is_added if self._clone else lambda *_: True
        for part in _names_to_find(name):
            for other_path in self._list_files(part, cited.old):
                version = self._read(other_path) if other_path != path else None
                symbols = version.symbols_by_base_name(part) if version is not None else []
                if version and any(is_new(other_path, symbol.line) for symbol in symbols):
                    versions[other_path] = version
                if len(versions) == _MAX_FILES:
                    break
        exact = [version for version in versions.values() if version.symbols_named(name)]
        return exact or [*versions.values()]

    def _list_files(self, part: str, old: Version) -> list[str]:
        """Return the files that got lines with a name; those with most names of the old first."""
        if self._clone is None:
            return self._cited
        names = {base_name(symbol.name) for symbol in old.outline.symbols}
        added = self._moved_lines.names
        counts = {path: len(names & found) for path, found in added.items() if part in found}
        return sorted(counts, key=lambda path: -counts[path])[:_MAX_READ]


def _names_to_find(name: str) -> list[str]:
    """Return the parts of a symbol's name to look for: the outermost and the base name."""
    parts = dict.fromkeys((name.partition(".")[0], base_name(name)))
    return [part for part in parts if part and not part.endswith("__")]
