"""Finds the commit at which notes were read, when the notes don't say it.

The names that the text gives next to each citation must be in the cited lines. The commit at which
most citations pass is the one that was read.
"""

import msgspec

from notelab.audit.mentions import Mention
from notelab.audit.repository import Repository
from notelab.lines import names_in, split_lines

_NEAR = 0.5  # the weight from which a name belongs to the citation and not only to its paragraph
_MAX_TAGS, _MAX_AROUND = 400, 40
_WEEKS = 6  # before and after the note's date


class Reading(msgspec.Struct, frozen=True):
    """A citation whose commit is unknown: its path and lines, and the names near it."""

    path: str
    first: int
    last: int
    names: frozenset[str]


class Reached(msgspec.Struct, frozen=True):
    """A commit, its tag or '', and how many citations have their names there."""

    commit: str
    tag: str
    fitting: int

    def __str__(self) -> str:
        """Return the tag, or else the first digits of the commit."""
        return self.tag or self.commit[:12]


def make_reading(path: str, first: int, last: int, mentions: list[Mention]) -> Reading | None:
    """Return a citation that can be dated, or None if nothing near it is named."""
    names = frozenset(mention.name for mention in mentions if mention.weight >= _NEAR)
    return Reading(path, first, last, names) if names else None


def rank_commits(repository: Repository, readings: list[Reading], date: str) -> list[Reached]:
    """Return the tags and the commits around a date, those with most fitting citations first.

    Of commits that fit alike, a tag comes before a commit without one, and the newest first.

    Args:
        repository: the repository that the notes are about.
        readings: the citations.
        date: when the notes were written, as git understands it.
    """
    by_path: dict[str, list[Reading]] = {}
    for reading in readings:
        by_path.setdefault(reading.path, []).append(reading)
    fits: dict[tuple[str, str], int] = {}
    ranked = []
    seen: set[str] = set()
    for commit, tag in [*_list_tags(repository), *_list_around(repository, date)]:
        if commit in seen:
            continue  # a tag and a commit without one, or two tags, that are the same commit
        seen.add(commit)
        fitting = 0
        for path, group in by_path.items():
            blob = repository.find_blob(commit, path)
            if blob and (blob, path) not in fits:
                lines = split_lines(repository.read_blob(blob))
                fits[blob, path] = sum(_fits(reading, lines) for reading in group)
            fitting += fits.get((blob, path), 0)
        ranked.append(Reached(commit, tag, fitting))
    return sorted(ranked, key=lambda reached: (-reached.fitting, not reached.tag))


def _fits(reading: Reading, lines: list[bytes]) -> bool:
    if reading.last > len(lines):
        return False
    text = b"\n".join(lines[reading.first - 1 : reading.last]).decode("utf-8", "replace")
    return not reading.names.isdisjoint(names_in(text))


def _list_tags(repository: Repository) -> list[tuple[str, str]]:
    """Return commit and name of the newest tags, the newest first."""
    ran = repository.git.run(
        *("for-each-ref", "--sort=-version:refname", "--sort=-creatordate"),
        f"--count={_MAX_TAGS}",
        *("--format=%(objectname) %(*objectname) %(refname:lstrip=2)", "refs/tags"),
    )
    rows = [row.split(" ", 2) for row in ran.text.split("\n") if row.count(" ") >= 2]
    return [(peeled or commit, tag) for commit, peeled, tag in rows]


def _list_around(repository: Repository, date: str) -> list[tuple[str, str]]:
    """Return up to 40 commits from the weeks around a date, the newest first."""
    ran = repository.git.run(
        *("log", "--first-parent", "--format=%H", f"--since={date} {_WEEKS} weeks ago"),
        *(f"--until={date}", repository.commit),
        timeout=120,
    )
    commits = ran.text.split()
    step = max(len(commits) // _MAX_AROUND, 1)
    return [(commit, "") for commit in commits[::step]]
