"""The frozen sample of citations that a release changed: what repin proposes, scored.

`sample.toml` beside this file says how it was judged. Half of its files were held out: what is
changed about the proposals is tried on the other half alone.
"""

import re
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

from notelab.repin.changes import CitationChange, Kind, Place
from notelab.repin.classify import classify_change
from notelab.repin.line_map import LineMap
from notelab.repin.moved_lines import MovedLines, OtherFiles
from notelab.repin.version import CitedLines
from notelab.sources.git.git_command import GitCommand
from tests.notelab.repin.clone import Clone

HERE = Path(__file__).parent
SEED = 20261123  # of the draw, and of what was held out
_KEY = re.compile(r"(?:(?P<path>[^:]+):)?L(?P<start>\d+)(?:-L(?P<end>\d+))?\Z")


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A citation at a release, what a reader says became of it, and which proposals are right."""

    at: str
    cited: str
    anchors: list[str]
    kind: Kind
    why: str
    readings: tuple[str, str, str]
    right: list[str] = []
    settled: str = ""

    @property
    def releases(self) -> tuple[str, str]:
        """Return the release of the citation, and the release to which it is moved."""
        old, _, new = self.at.partition(" > ")
        return old, new

    @property
    def place(self) -> Place:
        """Return the cited place."""
        return parse_place(self.cited)

    @property
    def places(self) -> list[Place]:
        """Return the right proposals."""
        return [parse_place(key, self.place.path) for key in self.right]

    @property
    def held_out(self) -> bool:
        """Return whether the citation is of a file that was not used for tuning."""
        return sha256(f"{SEED} {self.place.path}".encode()).digest()[0] % 2 == 0


class Score(msgspec.Struct):
    """How many proposals were right (first, or among three), and gone ones recognised."""

    standing: int = 0
    first: int = 0
    three: int = 0
    gone: int = 0
    recognised: int = 0

    def format(self) -> str:
        """Return the score as a line."""
        return (
            f"first {self.first} of {self.standing} ({self.first / self.standing:.1%}), in three "
            f"{self.three} ({self.three / self.standing:.1%}), gone {self.recognised} of "
            f"{self.gone} ({self.recognised / self.gone:.1%})"
        )

    def count(self, judged: Judged, proposals: list[Place]) -> None:
        """Count one citation and its proposals."""
        if judged.kind == "gone":
            self.gone += 1
            self.recognised += not proposals
        else:
            self.standing += 1
            self.first += bool(proposals) and proposals[0] in judged.places
            self.three += any(each in judged.places for each in proposals[:3])


def parse_place(key: str, path: str = "") -> Place:
    """Return the place that a key names; a key without a path is of the file `path`."""
    match = _KEY.match(key)
    assert match, key
    start = int(match["start"])
    return Place(match["path"] or path, start, int(match["end"] or start))


def load() -> list[Judged]:
    """Return all judgements."""

    class File(msgspec.Struct, forbid_unknown_fields=True):
        judged: list[Judged]

    return msgspec.toml.decode((HERE / "sample.toml").read_bytes(), type=File).judged


def load_untouched() -> list[tuple[str, str, Place]]:
    """Return the drawn citations that no hunk touches."""
    rows = (HERE / "untouched.txt").read_text().splitlines()
    pattern = re.compile(r"(\S+) > (\S+) (\S+)")
    matches = (pattern.fullmatch(row) for row in rows)
    return [(match[1], match[2], parse_place(match[3])) for match in matches if match]


def classify(judged: Judged, clone: Clone) -> CitationChange:
    """Return repin's answer for a citation."""
    old, new = judged.releases
    place = judged.place
    before = clone.version(old, place.path)
    assert before is not None

    moved_lines = _find_moved_lines(clone, old, new)
    other_files = OtherFiles(
        lambda path: clone.version(new, path),
        (),
        GitCommand(Path(clone.folder)),
        (f"core_v{old}", f"core_v{new}"),
        moved_lines,
    )
    cited = CitedLines(before, place.start, place.end, judged.anchors)
    after, line_map = clone.version(new, place.path), clone.between(old, new, place.path)
    return classify_change(cited, after, line_map, other_files.find, moved_lines)


@cache
def _find_moved_lines(clone: Clone, old: str, new: str) -> MovedLines:
    git, commits = GitCommand(Path(clone.folder)), (f"core_v{old}", f"core_v{new}")
    return MovedLines(lambda path: clone.version(new, path), git, commits)


def project_by_hunks(judged: Judged, clone: Clone) -> list[Place]:
    """Return what git's hunks alone would propose, as the baseline."""
    old, new = judged.releases
    place = judged.place
    line_map = clone.between(old, new, place.path)
    return [project_place(line_map, place)] if line_map else []


def project_place(line_map: LineMap, place: Place) -> Place:
    """Return the lines that are where a range was, by git's line map."""
    start, end = line_map.project(place.start), line_map.project(place.end)
    return Place(place.path, start, max(start, end))
