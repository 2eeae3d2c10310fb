"""Finds the other files that cited lines may have moved to: a renamed file, or one that has begun
to define their symbol.
"""

from collections.abc import Callable, Iterable
from functools import cached_property

from notelab.repin.moved_lines import MovedLines
from notelab.repin.version import CitedLines, Version, base_name
from notelab.sources.git.command import GitCommand

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
