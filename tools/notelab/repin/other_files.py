"""Finds the other files that a symbol may have moved to: those that define it only since then."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

from notelab.lines import split_lines
from notelab.repin.version import CitedLines, Version, base_name
from notelab.sources.git.command import GitCommand

_MAX_FILES = 8  # a name that more files define is as common as `forward`
_DEFINITION = r"^[[:space:]]*(async )?(def|class) [A-Za-z_][A-Za-z0-9_]*"
_ENDINGS = (".py", ".pyi")
ReadVersion = Callable[[str], Version | None]


class OtherFiles:
    """The files of the new commit that may hold what left a file.

    Args:
        read: reads a file at the new commit.
        cited: the cited paths, which are searched if there is no clone.
        clone: a clone with both commits, or None.
        commits: the old commit and the new one.
    """

    def __init__(
        self,
        read: ReadVersion,
        cited: Iterable[str],
        clone: GitCommand | None,
        commits: tuple[str, str],
    ) -> None:
        """Prepare; git runs only once a symbol has left its file."""
        self._read, self._cited = read, list(cited)
        self._clone, self._commits = clone, commits

    @cached_property
    def _newly_defined(self) -> dict[str, list[str]]:
        """Return for each name the files that define it at the new commit only."""
        if self._clone is None:
            return {}
        old_definitions, new_definitions = (
            _find_definitions(self._clone, commit) for commit in self._commits
        )
        if old_definitions is None or new_definitions is None:
            return {}
        return {
            name: sorted(paths - old_definitions.get(name, set()))
            for name, paths in new_definitions.items()
        }

    @cached_property
    def _added_paths(self) -> list[str]:
        """Return the files that the old commit does not have."""
        if self._clone is None:
            return []
        command = ("diff-tree", "-r", "-z", "--name-only", "--diff-filter=A", "--no-renames")
        ran = self._clone.run(*command, *self._commits, timeout=300)
        return ran.out.decode("utf-8", "replace").split("\0")

    def find(self, cited: CitedLines) -> list[Version]:
        """Return the files that define the citation's symbol, else files of the same name."""
        name, path = cited.symbol_name, cited.old.path
        versions: dict[str, Version] = {}
        for part in _names_to_find(name):
            for other_path in self._rank_files(part, cited.old):
                version = self._read(other_path) if other_path != path else None
                if version is not None and version.symbols_by_base_name(part):
                    versions[other_path] = version
        exact = [version for version in versions.values() if version.symbols_named(name)]
        return exact or [*versions.values()] or self._find_same_name(path)

    def _rank_files(self, part: str, old: Version) -> list[str]:
        """Return the files that now define a name; those with most names of the old file first."""
        if self._clone is None:
            return self._cited
        counts = Counter(
            path
            for name in {base_name(symbol.name) for symbol in old.outline.symbols}
            for path in self._newly_defined.get(name, [])
        )
        return sorted(self._newly_defined.get(part, []), key=lambda path: -counts[path])[
            :_MAX_FILES
        ]

    def _find_same_name(self, path: str) -> list[Version]:
        """Return the added files of the same name, if the file itself no longer exists."""
        if self._read(path) is not None:
            return []
        folder, _, name = path.rpartition("/")
        paths = [
            path
            for path in self._added_paths
            if path.endswith(f"/{name}") and name != "__init__.py"
        ]
        paths.sort(key=lambda path: -len(set(path.split("/")) & set(folder.split("/"))))
        return [version for version in map(self._read, paths[:_MAX_FILES]) if version]


def _names_to_find(name: str) -> list[str]:
    """Return the parts of a symbol's name to look for: the outermost and the base name."""
    parts = dict.fromkeys((name.partition(".")[0], base_name(name)))
    return [part for part in parts if part and not part.endswith("__")]


def _find_definitions(clone: GitCommand, commit: str) -> dict[str, set[str]] | None:
    """Return the Python files that define each name, or None if the clone cannot tell.

    All names are searched at once: git takes far longer for a hundred given names.
    """
    ran = clone.run("grep", "--text", "-o", "-z", "-E", _DEFINITION, commit, timeout=300)
    if ran.status > 1:
        return None
    paths_by_name: dict[str, set[str]] = {}
    for row in split_lines(ran.out.decode("utf-8", "replace")):
        blob_path, _, definition = row.partition("\0")
        if blob_path.endswith(_ENDINGS):
            paths_by_name.setdefault(definition.rpartition(" ")[2], set()).add(
                blob_path.partition(":")[2]
            )
    return paths_by_name
