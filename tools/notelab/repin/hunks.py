"""What became of each line of a file, as git's histogram diff says it."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from notelab.errors import NotelabError
from notelab.sources.git.command import GitCommand

_FILE = re.compile(r"diff --git .*/(\d+)\"?$")
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
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
        for hunk in self.hunks:
            # An insertion stands before its line: it splits what begins earlier.
            if hunk.count and hunk.first <= last and hunk.first + hunk.count > first:
                return None
            if not hunk.count and first < hunk.first <= last:
                return None
        return first + self._shift(first)

    def toward(self, row: int) -> int:
        """Return the line that stands where a line stood; in a hunk, as far into the new one."""
        for hunk in self.hunks:
            if hunk.count and hunk.first <= row < hunk.first + hunk.count:
                into = (row - hunk.first) * hunk.new_count // hunk.count
                return hunk.new_first + into
        return row + self._shift(row)

    def origin(self, row: int) -> int | None:
        """Return the old line that a new line is, or None where it is new."""
        at = bisect_right(self.hunks, row, key=lambda hunk: hunk.new_first)
        if not at:
            return row
        before = self.hunks[at - 1]
        if row < before.new_first + before.new_count:
            return None
        return row - before.new_first - before.new_count + before.first + before.count

    def _shift(self, row: int) -> int:
        at = bisect_right(self.hunks, row, key=lambda hunk: hunk.first + max(hunk.count, 1) - 1)
        if not at:
            return 0
        before = self.hunks[at - 1]
        return before.new_first + before.new_count - before.first - before.count


def maps(pairs: Sequence[tuple[bytes, bytes]]) -> list[Map]:
    """Return the map of each pair of an old and a new text, by one run of git.

    Two files side by side are enough: no history is asked for, so two wheels do as well as a clone.

    Raises:
        NotelabError: git can't be run.
    """
    with TemporaryDirectory(prefix="shardbook-") as scratch:
        sides = Path(scratch, "old"), Path(scratch, "new")
        for at, side in enumerate(sides):
            side.mkdir()
            for index, pair in enumerate(pairs):
                (side / str(index)).write_bytes(pair[at])
        ran = GitCommand(None).run(
            *("diff", "--no-index", "--no-color", "--no-ext-diff", "--no-textconv", "--text"),
            *("--no-renames", "--diff-algorithm=histogram", "-U0", "--", *map(str, sides)),
            timeout=_SECONDS,
        )
    if ran.status not in (0, 1):
        raise NotelabError(f"git could not compare the two versions: {ran.why()}")
    return _parsed(ran.out, len(pairs))


def _parsed(out: bytes, count: int) -> list[Map]:
    found: list[Map] = [Map([]) for _ in range(count)]
    lines = out.split(b"\n")
    at, current = 0, -1
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(b"diff --git "):
            name = _FILE.match(line.decode("utf-8", "replace"))
            current = int(name[1]) if name else -1
        elif (hunk := _HUNK.match(line)) and current >= 0:
            first, taken = int(hunk[1]), int(hunk[2] or 1)
            new_first, new_taken = int(hunk[3]), int(hunk[4] or 1)
            made = Hunk(first + (not taken), taken, new_first + (not new_taken), new_taken)
            found[current].hunks.append(made)
            skipped = 0
            while skipped < taken + new_taken:  # the lines may hold anything, `@@` too
                skipped += not lines[at].startswith(b"\\")
                at += 1
    return found
