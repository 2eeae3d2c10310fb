"""The frozen sample of citations that a release changed: what repin proposes, scored.

`sample.toml` beside this file says how it was judged. Half of its files were held out: what is
changed about the proposals is tried on the other half alone.
"""

import re
from hashlib import sha256
from pathlib import Path

import msgspec

from notelab.repin.becoming import become
from notelab.repin.carried import Carried, Kind, Place
from notelab.repin.elsewhere import Elsewhere
from notelab.repin.hunks import Map
from notelab.repin.version import Cited
from notelab.sources.git.command import GitCommand
from tests.notelab.repin.drawing import SEED, Clone

HERE = Path(__file__).parent
_KEY = re.compile(r"(?:(?P<path>[^:]+):)?L(?P<start>\d+)(?:-L(?P<end>\d+))?\Z")


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A citation at a release, what a reader says became of it, and where it may be proposed."""

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
        """Return the release that it is of, and the one that it is carried to."""
        old, _, new = self.at.partition(" > ")
        return old, new

    @property
    def place(self) -> Place:
        """Return what is cited."""
        return placed(self.cited)

    @property
    def places(self) -> list[Place]:
        """Return what is right to propose."""
        return [placed(one, self.place.path) for one in self.right]

    @property
    def held_out(self) -> bool:
        """Tell whether it is of a file that nothing was tuned on."""
        return sha256(f"{SEED} {self.place.path}".encode()).digest()[0] % 2 == 0


class Score(msgspec.Struct):
    """How many proposals were right: first, among three; how many of the gone were recognised."""

    standing: int = 0
    first: int = 0
    three: int = 0
    gone: int = 0
    recognised: int = 0

    def told(self) -> str:
        """Return it as a line."""
        return (
            f"first {self.first} of {self.standing} ({self.first / self.standing:.1%}), in three "
            f"{self.three} ({self.three / self.standing:.1%}), gone {self.recognised} of "
            f"{self.gone} ({self.recognised / self.gone:.1%})"
        )

    def count(self, one: Judged, proposals: list[Place]) -> None:
        """Count one citation and what is proposed for it."""
        if one.kind == "gone":
            self.gone += 1
            self.recognised += not proposals
        else:
            self.standing += 1
            self.first += bool(proposals) and proposals[0] in one.places
            self.three += any(each in one.places for each in proposals[:3])


def placed(key: str, path: str = "") -> Place:
    """Return the place that a key names; one without a path is of the file given."""
    found = _KEY.match(key)
    assert found, key
    start = int(found["start"])
    return Place(found["path"] or path, start, int(found["end"] or start))


def load() -> list[Judged]:
    """Return every judgement."""

    class File(msgspec.Struct, forbid_unknown_fields=True):
        judged: list[Judged]

    return msgspec.toml.decode((HERE / "sample.toml").read_bytes(), type=File).judged


def untouched() -> list[tuple[str, str, Place]]:
    """Return the citations that were drawn and that no hunk touches."""
    rows = (HERE / "untouched.txt").read_text().splitlines()
    pattern = re.compile(r"(\S+) > (\S+) (\S+)")
    found = (pattern.fullmatch(row) for row in rows)
    return [(one[1], one[2], placed(one[3])) for one in found if one]


def became(one: Judged, clone: Clone) -> Carried:
    """Return what repin says of a citation."""
    old, new = one.releases
    place = one.place
    before = clone.version(old, place.path)
    assert before is not None

    elsewhere = Elsewhere(
        lambda path: clone.version(new, path),
        (),
        GitCommand(Path(clone.folder)),
        (f"core_v{old}", f"core_v{new}"),
    )
    cited = Cited(before, place.start, place.end, one.anchors)
    after, through = clone.version(new, place.path), clone.between(old, new, place.path)
    return become(cited, after, through, elsewhere.holding)


def plainly(one: Judged, clone: Clone) -> list[Place]:
    """Return what git's hunks alone would propose: the baseline."""
    old, new = one.releases
    place = one.place
    through = clone.between(old, new, place.path)
    return [mapped(through, place)] if through else []


def mapped(through: Map, place: Place) -> Place:
    """Return the lines that stand where a range stood, as git's map has them."""
    start, end = through.toward(place.start), through.toward(place.end)
    return Place(place.path, start, max(start, end))
