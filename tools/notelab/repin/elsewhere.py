"""Which other files may have taken over what left its own? Those that define it now, and didn't."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

from notelab.lines import split_lines
from notelab.repin.version import Cited, Version, own_name
from notelab.sources.git.command import GitCommand

_MOST = 8  # files that may have taken over a symbol; more would be a name as common as `forward`
_DEFINES = r"^[[:space:]]*(async )?(def|class) [A-Za-z_][A-Za-z0-9_]*"
_ENDINGS = (".py", ".pyi")
Read = Callable[[str], Version | None]


class Elsewhere:
    """The files of the new commit that may hold what left a file.

    Args:
        read: reads a file at the new commit.
        cited: the paths that are cited, and looked in where there is no clone.
        clone: a clone that has both commits, None where there is none.
        commits: the old commit and the new one.
    """

    def __init__(
        self, read: Read, cited: Iterable[str], clone: GitCommand | None, commits: tuple[str, str]
    ) -> None:
        """Nothing is looked for yet, and nothing ever where no symbol has left its file."""
        self._read, self._cited = read, list(cited)
        self._clone, self._commits = clone, commits

    @cached_property
    def _arrived(self) -> dict[str, list[str]]:
        """Return the files of the new commit that define a name, and didn't at the old one."""
        if self._clone is None:
            return {}
        before, after = (_definers(self._clone, commit) for commit in self._commits)
        if before is None or after is None:
            return {}
        return {name: sorted(paths - before.get(name, set())) for name, paths in after.items()}

    @cached_property
    def _added(self) -> list[str]:
        """Return the files that the old commit doesn't have."""
        if self._clone is None:
            return []
        command = ("diff-tree", "-r", "-z", "--name-only", "--diff-filter=A", "--no-renames")
        ran = self._clone.run(*command, *self._commits, timeout=300)
        return ran.out.decode("utf-8", "replace").split("\0")

    def holding(self, cited: Cited) -> list[Version]:
        """Return files that define what the citation stands in, or that have its file's name."""
        name, path = cited.symbol, cited.old.path
        taken: dict[str, Version] = {}
        for part in _telling(name):
            for other in self._nearest(part, cited.old):
                version = self._read(other) if other != path else None
                if version is not None and version.called(part):
                    taken[other] = version
        whole = [one for one in taken.values() if one.named(name)]
        return whole or [*taken.values()] or self._of_that_name(path)

    def _nearest(self, part: str, old: Version) -> list[str]:
        """Return the files that took a definition, those first that took most of its file's."""
        if self._clone is None:
            return self._cited
        took = Counter(
            path
            for name in {own_name(one.name) for one in old.outline.symbols}
            for path in self._arrived.get(name, [])
        )
        return sorted(self._arrived.get(part, []), key=lambda path: -took[path])[:_MOST]

    def _of_that_name(self, path: str) -> list[Version]:
        """Return the new files of the same name, where the file itself is not there any more."""
        if self._read(path) is not None:
            return []
        folder, _, name = path.rpartition("/")
        found = [one for one in self._added if one.endswith(f"/{name}") and name != "__init__.py"]
        found.sort(key=lambda one: -len(set(one.split("/")) & set(folder.split("/"))))
        return [one for one in map(self._read, found[:_MOST]) if one]


def _telling(name: str) -> list[str]:
    """Return the parts of a symbol's name to look for: the outermost and its own."""
    parts = dict.fromkeys((name.partition(".")[0], own_name(name)))
    return [one for one in parts if one and not one.endswith("__")]


def _definers(clone: GitCommand, commit: str) -> dict[str, set[str]] | None:
    """Return the Python files that define each name; None where the clone can't say.

    All names at once: git looks for a hundred given ones far more slowly.
    """
    ran = clone.run("grep", "--text", "-o", "-z", "-E", _DEFINES, commit, timeout=300)
    if ran.status > 1:
        return None
    found: dict[str, set[str]] = {}
    for row in split_lines(ran.out.decode("utf-8", "replace")):
        where, _, said = row.partition("\0")
        if where.endswith(_ENDINGS):
            found.setdefault(said.rpartition(" ")[2], set()).add(where.partition(":")[2])
    return found
