"""Draw citations such as an author would write, and pairs of releases to carry them between.

A function of its seed, the clone and the workbook's locks. Three of ten are the workbook's own; the
others are whole symbols, runs of statements and parts of them in any file of Megatron-LM, each with
the names that are rarest there. What nothing touched is drawn on to `like`, the rest, which must be
read to be judged, to `unlike`.
"""

import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from notelab.cited.outline import of_file
from notelab.lines import split_lines
from notelab.repin.candidates import sibling_runs
from notelab.repin.line_map import LineMap, map_lines
from notelab.repin.version import CitedLines, Version

SEED = 20261123
RELEASES = (
    *("0.8.0", "0.9.0", "0.10.0", "0.11.0", "0.12.0", "0.13.0", "0.14.0", "0.15.0", "0.16.1"),
    *("0.17.1", "0.18.0", "0.19.0"),
)
PINNED = RELEASES.index("0.16.1")
LOCKS = ("experiments/35-reading-notes", "experiments/35-further-readings")
_LockedCitation = tuple[str, int, int, tuple[str, ...]]
_KEY = re.compile(r"(?P<path>[^:]+):L(?P<start>\d+)(?:-L(?P<end>\d+))?\Z")


class Drawn(msgspec.Struct, frozen=True):
    """A citation at a release, and the release that it is carried to."""

    old: str
    new: str
    path: str
    start: int
    end: int
    anchors: list[str]


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


def draw(clone: Clone, like: int, unlike: int) -> tuple[list[Drawn], list[Drawn]]:
    """Return so many citations that nothing touched, and so many that a reader must judge."""
    random_ = random.Random(SEED)
    locked = sorted(_locked_citations())
    drawn: tuple[list[Drawn], list[Drawn]] = ([], [])
    seen: Counter[tuple[str, str, str]] = Counter()
    while len(drawn[0]) < like or len(drawn[1]) < unlike:
        candidate = _draw_one(random_, clone, locked)
        if (
            candidate is None
            or seen[candidate.old, candidate.new, candidate.path] > 1
            or candidate in drawn[0] + drawn[1]
        ):
            continue
        touched = not _untouched(candidate, clone)
        if len(drawn[touched]) < (like, unlike)[touched]:
            seen[candidate.old, candidate.new, candidate.path] += 1
            drawn[touched].append(candidate)
    return drawn


def _draw_one(random_: random.Random, clone: Clone, locked: list[_LockedCitation]) -> Drawn | None:
    if random_.random() < 0.3:
        path, start, end, names = random_.choice(locked)
        old_index = PINNED
    else:
        old_index = random_.randrange(len(RELEASES))
        path, start, end, names = "", 0, 0, tuple[str, ...]()
    new_index = old_index + random_.choice((-4, -3, -2, -1, 1, 2, 3, 4))
    if not 0 <= new_index < len(RELEASES):
        return None
    old, new = RELEASES[old_index], RELEASES[new_index]
    if not path:
        path = random_.choice(
            [candidate for candidate in clone.files(old) if _is_eligible(candidate)]
        )
    version = clone.version(old, path)
    if clone.files(old)[path] == clone.files(new).get(path) or version is None:
        return None
    if path not in clone.files(new) and random_.random() > 0.15:
        return None  # whole folders come and go; a few such files are enough
    if not start:
        place = _place(random_, version)
        if place is None:
            return None
        start, end = place
        if any("Copyright" in line for line in version.lines[start - 1 : end]):
            return None
        names = tuple(_names(version, start, end))
    return Drawn(old, new, path, start, end, list(names)) if names else None


def _is_eligible(path: str) -> bool:
    return path.startswith("megatron/") and path.endswith((".py", ".cpp"))


def _place(random_: random.Random, version: Version) -> tuple[int, int] | None:
    outline = version.outline
    symbols = [symbol for symbol in outline.symbols if symbol.last - symbol.first < 40]
    if symbols and random_.random() < 0.25:
        symbol = random_.choice(symbols)
        return symbol.top, symbol.last
    groups = [run for run in sibling_runs(outline, 1, outline.lines) if run]
    if not groups:
        return None
    run = random_.choice(groups)
    at = random_.randrange(len(run))
    end = min(at + random_.choice((0, 0, 1, 2, 3)), len(run) - 1)
    first, last = run[at][0], run[end][1]
    return (first, last) if last - first < random_.choice((6, 12, 24)) else None


def _names(version: Version, start: int, end: int) -> list[str]:
    counts = Counter(name for line in version.outline.names for name in line.split())
    names = version.outline.names_between(start, end)
    return sorted(sorted(names, key=lambda name: (counts[name], name))[:3])


def _untouched(drawn: Drawn, clone: Clone) -> bool:
    old, new = clone.version(drawn.old, drawn.path), clone.version(drawn.new, drawn.path)
    line_map = clone.between(drawn.old, drawn.new, drawn.path)
    if old is None or new is None or line_map is None:
        return False
    start = line_map.unchanged(drawn.start, drawn.end)
    cited = CitedLines(old, drawn.start, drawn.end, drawn.anchors)
    return start is not None and cited.has_same_context(new, start, start + drawn.end - drawn.start)


def _locked_citations() -> Iterator[_LockedCitation]:
    for lab in LOCKS:
        lock = json.loads(Path(lab, "citations.lock").read_text())
        for key, entry in lock["citations"].get("megatron", {}).items():
            match = _KEY.match(key)
            if match and "commit" not in entry and entry["anchors"]:
                start = int(match["start"])
                yield match["path"], start, int(match["end"] or start), tuple(entry["anchors"])
