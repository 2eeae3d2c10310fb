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
from notelab.repin.candidates import runs
from notelab.repin.hunks import Map, maps
from notelab.repin.version import Cited, Version

SEED = 20261123
RELEASES = (
    *("0.8.0", "0.9.0", "0.10.0", "0.11.0", "0.12.0", "0.13.0", "0.14.0", "0.15.0", "0.16.1"),
    *("0.17.1", "0.18.0", "0.19.0"),
)
PINNED = RELEASES.index("0.16.1")
LOCKS = ("experiments/35-reading-notes", "experiments/35-further-readings")
_Own = tuple[str, int, int, tuple[str, ...]]
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
            path: about.split()[2]
            for about, _, path in (row.partition("\t") for row in out)
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
    def between(self, old: str, new: str, path: str) -> Map | None:
        before, after = self.version(old, path), self.version(new, path)
        if before is None or after is None:
            return None
        return maps([(before, after)])[before, after]


def draw(clone: Clone, like: int, unlike: int) -> tuple[list[Drawn], list[Drawn]]:
    """Return so many citations that nothing touched, and so many that a reader must judge."""
    random_ = random.Random(SEED)
    own = sorted(_own())
    kept: tuple[list[Drawn], list[Drawn]] = ([], [])
    seen: Counter[tuple[str, str, str]] = Counter()
    while len(kept[0]) < like or len(kept[1]) < unlike:
        one = _one(random_, clone, own)
        if one is None or seen[one.old, one.new, one.path] > 1 or one in kept[0] + kept[1]:
            continue
        touched = not _untouched(one, clone)
        if len(kept[touched]) < (like, unlike)[touched]:
            seen[one.old, one.new, one.path] += 1
            kept[touched].append(one)
    return kept


def _one(random_: random.Random, clone: Clone, own: list[_Own]) -> Drawn | None:
    if random_.random() < 0.3:
        path, start, end, names = random_.choice(own)
        at = PINNED
    else:
        at = random_.randrange(len(RELEASES))
        path, start, end, names = "", 0, 0, tuple[str, ...]()
    to = at + random_.choice((-4, -3, -2, -1, 1, 2, 3, 4))
    if not 0 <= to < len(RELEASES):
        return None
    old, new = RELEASES[at], RELEASES[to]
    if not path:
        path = random_.choice([each for each in clone.files(old) if _asked(each)])
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


def _asked(path: str) -> bool:
    return path.startswith("megatron/") and path.endswith((".py", ".cpp"))


def _place(random_: random.Random, version: Version) -> tuple[int, int] | None:
    outline = version.outline
    symbols = [one for one in outline.symbols if one.last - one.first < 40]
    if symbols and random_.random() < 0.25:
        one = random_.choice(symbols)
        return one.top, one.last
    groups = [run for run in runs(outline, 1, outline.lines) if run]
    if not groups:
        return None
    run = random_.choice(groups)
    at = random_.randrange(len(run))
    end = min(at + random_.choice((0, 0, 1, 2, 3)), len(run) - 1)
    first, last = run[at][0], run[end][1]
    return (first, last) if last - first < random_.choice((6, 12, 24)) else None


def _names(version: Version, start: int, end: int) -> list[str]:
    on = Counter(name for line in version.outline.names for name in line.split())
    standing = version.outline.names_between(start, end)
    return sorted(sorted(standing, key=lambda name: (on[name], name))[:3])


def _untouched(one: Drawn, clone: Clone) -> bool:
    old, new = clone.version(one.old, one.path), clone.version(one.new, one.path)
    through = clone.between(one.old, one.new, one.path)
    if old is None or new is None or through is None:
        return False
    start = through.kept(one.start, one.end)
    cited = Cited(old, one.start, one.end, one.anchors)
    return start is not None and cited.stands_in(new, start, start + one.end - one.start)


def _own() -> Iterator[_Own]:
    for lab in LOCKS:
        lock = json.loads(Path(lab, "citations.lock").read_text())
        for key, entry in lock["citations"].get("megatron", {}).items():
            found = _KEY.match(key)
            if found and "commit" not in entry and entry["anchors"]:
                start = int(found["start"])
                yield found["path"], start, int(found["end"] or start), tuple(entry["anchors"])
