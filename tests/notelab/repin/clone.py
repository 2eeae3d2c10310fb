"""Megatron-LM's releases, read from a clone, each file and line map once."""

import subprocess
from functools import cache

from notelab.cited.outline import of_file
from notelab.lines import split_lines
from notelab.repin.line_map import LineMap, map_lines
from notelab.repin.version import Version


class Clone:
    """Megatron-LM's releases, read from a clone."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def git(self, *words: str) -> bytes:
        return subprocess.run(
            ("git", "-C", self.folder, *words), check=True, capture_output=True
        ).stdout

    @cache  # noqa: B019 - one clone a program
    def files(self, release: str) -> dict[str, str]:
        out = self.git("ls-tree", "-r", "-z", f"core_v{release}").decode().split("\0")
        return {
            path: entry.split()[2]
            for entry, _, path in (row.partition("\t") for row in out)
            if path
        }

    @cache  # noqa: B019
    def version(self, release: str, path: str) -> Version | None:
        blob = self.files(release).get(path)
        if blob is None:
            return None
        data = self.git("cat-file", "blob", blob)
        return Version(path, blob, split_lines(data), of_file(path, data))

    @cache  # noqa: B019
    def between(self, old: str, new: str, path: str) -> LineMap | None:
        before, after = self.version(old, path), self.version(new, path)
        if before is None or after is None:
            return None
        return map_lines([(before, after)])[before, after]
