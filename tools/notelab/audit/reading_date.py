"""Finds the commit at which notes were read, when the notes don't say it.

The names that the text gives next to each citation must be in the cited lines, or in the heads of
what encloses them. Where a quotation follows a citation, its lines must be in the cited ones. The
commit at which most citations pass is the one that was read.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from notelab.audit.mentions import BESIDE, Mention
from notelab.audit.repository import Repository
from notelab.lines import names_in, split_lines

_MAX_TAGS, _MAX_AROUND = 400, 400
_EXACT = 2  # the measure of lines that have a name or a quotation; 1 is lines in a named function
_QUOTED = 0.8  # the share of a quotation that the cited lines must have
_HEAD, _MAX_ABOVE = 8, 600  # lines of a head, and above a citation that are searched for heads
_BEFORE = timedelta(weeks=12)  # the commits before the note's date that are compared
_MARGIN = timedelta(weeks=1)  # a tag is often made some days after the commit that it names


class Reading(msgspec.Struct, frozen=True):
    """A citation whose commit is unknown: the paths that it may mean, its lines, names near it.

    `quoted` are the lines of the quotation that follows it, without white space.
    """

    paths: tuple[str, ...]
    first: int
    last: int
    names: frozenset[str]
    quoted: tuple[bytes, ...] = ()


class Reached(msgspec.Struct, frozen=True):
    """A commit, its tags, and how many citations fit, of these `exact` in their very lines."""

    commit: str
    tags: tuple[str, ...]
    fitting: int
    exact: int = 0

    @property
    def score(self) -> tuple[int, int]:
        """Return by what commits are compared."""
        return self.fitting, self.exact

    def __str__(self) -> str:
        """Return the first tag, or else the first digits of the commit."""
        return self.tags[0] if self.tags else self.commit[:12]


def make_reading(
    paths: Iterable[str], first: int, last: int, mentions: list[Mention], quoted: Iterable[str] = ()
) -> Reading | None:
    """Return a citation that can be dated, or None if nothing around it is named or quoted."""
    near = [mention for mention in mentions if mention.weight >= BESIDE] or mentions
    names = frozenset(mention.name for mention in near)
    lines = tuple(_strip(line.encode()) for line in quoted)
    return Reading(tuple(paths), first, last, names, lines) if names or lines else None


def rank_commits(repository: Repository, readings: list[Reading], date: str) -> list[Reached]:
    """Return the tags and the commits around a date, those with most fitting citations first.

    Of commits that fit alike, a tag comes before a commit without one, and the newest first.

    Args:
        repository: the repository that the notes are about.
        readings: the citations.
        date: when the notes were written, in ISO format, or '' for now.
    """
    until = datetime.fromisoformat(date) if date else datetime.now(UTC)
    by_path: dict[str, list[Reading]] = {}
    for reading in readings:
        for path in reading.paths:
            by_path.setdefault(path, []).append(reading)
    fits: dict[tuple[str, str], dict[int, int]] = {}
    ranked = []
    tags: dict[str, list[str]] = {}
    for commit, tag in [*_list_tags(repository, until), *_list_around(repository, until)]:
        tags.setdefault(commit, []).extend([tag] if tag else [])
    for commit, names in tags.items():
        best: Counter[int] = Counter()
        for path, group in by_path.items():
            blob = repository.find_blob(commit, path)
            if blob and (blob, path) not in fits:
                lines = split_lines(repository.read_blob(blob))
                fits[blob, path] = {id(reading): _measure(reading, lines) for reading in group}
            best |= Counter(fits.get((blob, path), {}))  # of several files, the one that fits best
        exact = sum(value == _EXACT for value in best.values())
        ranked.append(Reached(commit, tuple(sorted(names, key=len)), len(best), exact))
    return sorted(ranked, key=lambda each: (-each.fitting, -each.exact, not each.tags))


def _measure(reading: Reading, lines: list[bytes]) -> int:
    """Return how well a file fits a citation: in the cited lines, around them, or 0."""
    if reading.last > len(lines):
        return 0
    cited = lines[reading.first - 1 : reading.last]
    if reading.quoted:
        stripped = {_strip(line) for line in cited}
        if sum(line in stripped for line in reading.quoted) >= _QUOTED * len(reading.quoted):
            return _EXACT
    elif not reading.names.isdisjoint(_names(cited)):
        return _EXACT
    return int(not reading.names.isdisjoint(_names(_find_heads(lines, reading.first))))


def _strip(line: bytes) -> bytes:
    return b"".join(line.split())


def _names(lines: list[bytes]) -> list[str]:
    return names_in(b"\n".join(lines).decode("utf-8", "replace"))


def _find_heads(lines: list[bytes], first: int) -> list[bytes]:
    """Return the lines that open what encloses a line, by their indentation alone.

    A head may have several lines: a type above the name, and parameters below it.
    """
    heads: list[bytes] = []
    indent = _indent(lines[first - 1]) if lines[first - 1].strip() else 1
    for row in range(first - 1, max(first - _MAX_ABOVE, 0), -1):
        if indent == 0:
            break
        line = lines[row - 1]
        if line.strip() and _indent(line) < indent and not line.startswith(b"#"):
            indent = _indent(line)
            above = lines[max(row - _HEAD, 0) : row]
            blank = max((n for n, each in enumerate(above) if not each.strip()), default=-1)
            heads += above[blank + 1 :]
    return heads


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip())


def _list_tags(repository: Repository, until: datetime) -> list[tuple[str, str]]:
    """Return commit and name of the newest tags that notes of a date can have read."""
    ran = repository.git.run(
        *("for-each-ref", "--sort=-version:refname", "--sort=-creatordate", "refs/tags"),
        "--format=%(creatordate:unix) %(objectname) %(*objectname) %(refname:lstrip=2)",
    )
    rows = [row.split(" ", 3) for row in ran.text.split("\n") if row.count(" ") >= 3]
    limit = (until + _MARGIN).timestamp()
    return [(peeled or at, tag) for age, at, peeled, tag in rows if int(age or 0) <= limit][
        :_MAX_TAGS
    ]


def _list_around(repository: Repository, until: datetime) -> list[tuple[str, str]]:
    """Return commits from the weeks before a date, the newest first."""
    ran = repository.git.run(
        *("log", "--first-parent", "--format=%H", f"--since={(until - _BEFORE).isoformat()}"),
        *(f"--until={until.isoformat()}", repository.commit),
        timeout=120,
    )
    commits = ran.text.split()
    step = max(len(commits) // _MAX_AROUND, 1)
    return [(commit, "") for commit in commits[::step]]
