"""Maps the lines of a file to those of another version, from git's histogram diff."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from notelab.errors import NotelabError
from notelab.repin.version import Version
from notelab.sources.git.git_command import GitCommand

# With no context every other line begins with `+`, `-` or a backslash.
_OPENING = re.compile(
    rb"^(?:diff --git .*/(\d+)\"?$|@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@)", re.MULTILINE
)
_SECONDS = 300


class Hunk(msgspec.Struct, frozen=True):
    """`count` lines from `first` on became `new_count` lines from `new_first` on."""

    first: int
    count: int
    new_first: int
    new_count: int


class LineMap(msgspec.Struct, frozen=True):
    """The hunks between two versions of a file, in order."""

    hunks: list[Hunk] = []

    def unchanged(self, first: int, last: int) -> int | None:
        """Return the new first line of a range that no hunk touches, else None."""
        # An insertion is before its line, so it splits a range that begins earlier.
        before, after = self._neighbours(first)
        return None if after and after.first <= last else first + _shift(before)

    def project(self, row: int) -> int:
        """Return the new position of a line; within a hunk, the proportional position."""
        before, hunk = self._neighbours(row)
        if hunk and hunk.first <= row:
            return hunk.new_first + (row - hunk.first) * hunk.new_count // hunk.count
        return row + _shift(before)

    def invert(self) -> "LineMap":
        """Return the map from the new version to the old one."""
        return LineMap(
            [Hunk(hunk.new_first, hunk.new_count, hunk.first, hunk.count) for hunk in self.hunks]
        )

    def _neighbours(self, row: int) -> tuple[Hunk | None, Hunk | None]:
        """Return the last hunk that ends before a line, and the next one."""
        index = bisect_right(self.hunks, row, key=lambda hunk: hunk.first + hunk.count)
        return self.hunks[index - 1] if index else None, next(
            iter(self.hunks[index : index + 1]), None
        )


def _shift(hunk: Hunk | None) -> int:
    return hunk.new_first + hunk.new_count - hunk.first - hunk.count if hunk else 0


def map_lines(pairs: Iterable[tuple[Version, Version]]) -> dict[tuple[Version, Version], LineMap]:
    """Return the map of each pair of an old and a new version, from a single run of git.

    The two files are compared directly, without history, so that two wheels are as good as a clone.

    Raises:
        NotelabError: git cannot be run.
    """
    line_maps = {pair: LineMap([]) for pair in pairs}
    with TemporaryDirectory(prefix="shardbook-") as scratch:
        sides = Path(scratch, "old"), Path(scratch, "new")
        for side_index, side in enumerate(sides):
            side.mkdir()
            for index, pair in enumerate(line_maps):
                if pair[0].blob != pair[1].blob:
                    (side / str(index)).write_bytes(b"\n".join(pair[side_index].raw) + b"\n")
        process = GitCommand(None).run(
            *("diff", "--no-index", "--no-color", "--no-ext-diff", "--no-textconv", "--text"),
            *("--no-renames", "--diff-algorithm=histogram", "-U0", "--", *map(str, sides)),
            timeout=_SECONDS,
        )
    if process.status not in (0, 1):
        raise NotelabError(f"git could not compare the two versions: {process.why()}")
    maps_by_index = list(line_maps.values())
    for file, *numbers in _OPENING.findall(process.out):
        if file:
            current = maps_by_index[int(file)]
            continue
        first, count, new_first, new_count = (int(number or 1) for number in numbers)
        # If one side has no lines, git gives the line before.
        hunk = Hunk(first + (not count), count, new_first + (not new_count), new_count)
        current.hunks.append(hunk)
    return line_maps
