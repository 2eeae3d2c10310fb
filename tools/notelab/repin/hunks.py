"""What became of each line of a file, as git's histogram diff says it."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from notelab.errors import NotelabError
from notelab.repin.version import Version
from notelab.sources.git.command import GitCommand

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


class Map(msgspec.Struct, frozen=True):
    """The hunks between two versions of a file, in order."""

    hunks: list[Hunk] = []

    def kept(self, first: int, last: int) -> int | None:
        """Return the new first line of a range that no hunk touches, or None."""
        # An insertion stands before its line: it splits what begins earlier.
        before, after = self._around(first)
        return None if after and after.first <= last else first + _shift(before)

    def toward(self, row: int) -> int:
        """Return the line that stands where a line stood; in a hunk, as far into the new one."""
        before, hunk = self._around(row)
        if hunk and hunk.first <= row:
            return hunk.new_first + (row - hunk.first) * hunk.new_count // hunk.count
        return row + _shift(before)

    def back(self) -> "Map":
        """Return the way from the new version to the old one."""
        return Map([Hunk(one.new_first, one.new_count, one.first, one.count) for one in self.hunks])

    def _around(self, row: int) -> tuple[Hunk | None, Hunk | None]:
        """Return the last hunk that ends before a line, and the next one."""
        at = bisect_right(self.hunks, row, key=lambda hunk: hunk.first + hunk.count)
        return self.hunks[at - 1] if at else None, next(iter(self.hunks[at : at + 1]), None)


def _shift(hunk: Hunk | None) -> int:
    return hunk.new_first + hunk.new_count - hunk.first - hunk.count if hunk else 0


def maps(pairs: Iterable[tuple[Version, Version]]) -> dict[tuple[Version, Version], Map]:
    """Return the map of each pair of an old and a new version, by one run of git.

    Two files side by side are enough: no history is asked for, so two wheels do as well as a clone.

    Raises:
        NotelabError: git can't be run.
    """
    found = {pair: Map([]) for pair in pairs}
    with TemporaryDirectory(prefix="shardbook-") as scratch:
        sides = Path(scratch, "old"), Path(scratch, "new")
        for at, side in enumerate(sides):
            side.mkdir()
            for index, pair in enumerate(found):
                if pair[0].blob != pair[1].blob:
                    (side / str(index)).write_bytes(b"\n".join(pair[at].raw) + b"\n")
        ran = GitCommand(None).run(
            *("diff", "--no-index", "--no-color", "--no-ext-diff", "--no-textconv", "--text"),
            *("--no-renames", "--diff-algorithm=histogram", "-U0", "--", *map(str, sides)),
            timeout=_SECONDS,
        )
    if ran.status not in (0, 1):
        raise NotelabError(f"git could not compare the two versions: {ran.why()}")
    made = list(found.values())
    for file, *numbers in _OPENING.findall(ran.out):
        if file:
            current = made[int(file)]
            continue
        first, count, new_first, new_count = (int(number or 1) for number in numbers)
        # Where one side has none, git names the line before.
        hunk = Hunk(first + (not count), count, new_first + (not new_count), new_count)
        current.hunks.append(hunk)
    return found
