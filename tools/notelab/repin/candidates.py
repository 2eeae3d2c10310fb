"""Which lines of the new file may an edited citation have become? Best first."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from notelab.cited.outline import Outline, Symbol
from notelab.repin.carried import Place
from notelab.repin.hunks import Map
from notelab.repin.version import TOKEN, Cited, Version

_MOST = 3
# By judgement, and tried on the tuning half of tests/notelab/repin/sample.toml.
_TEXT, _CONTEXT, _ANCHORS, _PLACE = 0.55, 0.1, 0.1, 0.25
_FLOOR = 0.34  # of the old words, by their weight, that must still stand; else it is gone
_LEAST = 0.15  # so much is enough between the same two lines as before
_FIT = 0.4  # how well the best must fit, all told; else it is gone


class Scored(msgspec.Struct, frozen=True):
    """A candidate, how well it fits, and how much of the old words it has."""

    score: float
    left: float
    place: Place


def ranked(asked: Cited, new: Version, within: list[Symbol], through: Map | None) -> list[Scored]:
    """Return the runs of statements in some symbols (none: the whole file), best first.

    Args:
        asked: the citation.
        new: the file that is looked in.
        within: the symbols of it that are looked in.
        through: the hunks between the citation's file and this one; None if it is another: then it
            is expected as far into the first symbol as it stands in its own.
    """
    goal: tuple[int, int] | None = None
    if through is not None:
        goal = through.toward(asked.first), through.toward(asked.last)
    elif asked.inner is not None and within:
        off = within[0].first - asked.inner.first
        goal = asked.first + off, asked.last + off
    fit = _Fit(asked, new, through, goal)
    spans = _spans(new, within, asked.last - asked.first + 1)
    found = [one for one in (fit.scored(first, last) for first, last in spans) if one]
    return sorted(found, key=lambda one: (-one.score, one.place))


def best(found: list[Scored]) -> list[Scored]:
    """Return the first three places, best first; none where nothing is left."""
    kept: dict[Place, Scored] = {}
    for one in sorted(found, key=lambda each: -each.score):
        if len(kept) < _MOST and (kept or (one.left >= _FLOOR and one.score >= _FIT)):
            kept.setdefault(one.place, one)
    return [*kept.values()]


class _Fit:
    """How well runs of a file fit a citation."""

    def __init__(
        self, asked: Cited, new: Version, through: Map | None, goal: tuple[int, int] | None
    ) -> None:
        self._asked, self._new, self._through, self._goal = asked, new, through, goal
        cited = asked.old.lines[asked.first - 1 : asked.last]
        self._words = Counter(word for line in cited for word in TOKEN.findall(line))
        self._weight = sum(asked.old.weighing[word] for word in self._words.elements())
        self._context = _context(asked.old, asked.first, asked.last)
        self._rows: dict[int, tuple[float, list[str]]] = {}
        self._begun, self._weighed, self._common = (0, 0), 0.0, 0.0
        self._lacking: dict[str, int] = {}
        self._back = through.back() if through else None
        self._slot = goal is not None and self._in_its_slot(goal)

    def scored(self, first: int, last: int) -> Scored | None:
        """Score a run of lines; None where it has next to nothing in common."""
        asked = self._asked
        weight, common = self._run(first, last)
        text = 2 * common / (self._weight + weight) if self._weight + weight else 0.0
        at_goal = self._goal == (first, last)
        if text < 0.15 and not at_goal:
            return None
        above, below = _context(self._new, first, last)
        near = ((above == self._context[0]) + (below == self._context[1])) / 2
        standing = self._new.outline.names_between(first, last)
        held = sum(name in standing for name in asked.anchors) / len(asked.anchors or [1])
        score = _TEXT * text + _CONTEXT * near + _ANCHORS * held
        score += _PLACE * self._closeness(first, last)
        left = common / self._weight if self._weight else 0.0
        if at_goal and self._slot and left >= _LEAST:
            left = max(left, _FLOOR)
        return Scored(score, left, Place(self._new.path, first, last))

    def _run(self, first: int, last: int) -> tuple[float, float]:
        """Return what a run weighs, and what those of its words that the citation has too.

        Runs come with one first line and ever later last ones: each goes on from the one before.
        """
        begun, ended = self._begun
        if begun != first or ended > last:
            self._weighed, self._common, ended = 0.0, 0.0, first - 1
            self._lacking = dict(self._words)
        for row in range(ended + 1, last + 1):
            own, shared = self._row(row)
            self._weighed += own
            for word in shared:
                if self._lacking[word]:
                    self._lacking[word] -= 1
                    self._common += self._asked.old.weighing[word]
        self._begun = first, last
        return self._weighed, self._common

    def _row(self, row: int) -> tuple[float, list[str]]:
        """Return what a line weighs, and those of its words that the citation has too.

        A line that stood elsewhere in the old file can't be what the citation became.
        """
        if row not in self._rows:
            weight, said = self._asked.old.weighing.line(self._new.lines[row - 1])
            origin = self._back.kept(row, row) if self._back else None
            taken = origin is not None and not self._asked.first <= origin <= self._asked.last
            shared = [] if taken else [word for word in said if word in self._words]
            self._rows[row] = weight, shared
        return self._rows[row]

    def _in_its_slot(self, goal: tuple[int, int]) -> bool:
        """Tell whether what stands at the goal stands between the same two lines as before."""
        above, below = self._asked.first - 1, self._asked.last + 1
        if self._through is None or not above or below > len(self._asked.old.lines):
            return False
        kept = self._through.kept(above, above), self._through.kept(below, below)
        return kept == (goal[0] - 1, goal[1] + 1)

    def _closeness(self, first: int, last: int) -> float:
        if self._goal is None:
            return 0
        off = abs(self._goal[0] - first) + abs(self._goal[1] - last)
        return 1 / (1 + off / max(self._asked.last - self._asked.first + 1, 2))


def _context(side: Version, first: int, last: int) -> tuple[str, str]:
    """Return the nearest lines before and after a range that hold something."""
    above = (line.strip() for line in reversed(side.lines[: first - 1]) if line.strip())
    below = (line.strip() for line in side.lines[last:] if line.strip())
    return next(above, ""), next(below, "")


def _spans(new: Version, within: list[Symbol], size: int) -> Iterator[tuple[int, int]]:
    """Yield each run of siblings, of statements or of parts, of a size that may be meant."""
    least, most = size / 3 - 1, size * 2.5 + 4
    bounds = [(one.first, one.last) for one in within] or [(1, new.outline.lines)]
    seen: set[tuple[int, int]] = set()
    for run in (run for low, high in bounds for run in runs(new.outline, low, high)):
        for at, (begin, _) in enumerate(run):
            for first in {begin, _comment_above(new.lines, begin)}:
                for _, last in run[at:]:
                    if last - first + 1 > most:
                        break
                    if last - first + 1 >= least and (first, last) not in seen:
                        seen.add((first, last))
                        yield first, last


def _comment_above(lines: list[str], row: int) -> int:
    while row > 1 and lines[row - 2].lstrip().startswith(("#", "//")):
        row -= 1
    return row


def runs(outline: Outline, low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    """Yield lists of neighbours between two lines: statements of one block, parts of one whole."""
    opened: list[tuple[int, list[tuple[int, int]]]] = [(high, [])]  # a parent's end, its children
    for first, last in outline.statements:
        if first < low or last > high:
            continue
        while len(opened) > 1 and first > opened[-1][0]:
            yield opened.pop()[1]
        opened[-1][1].append((first, last))
        opened.append((last, []))
    yield from (children for _, children in opened)
    yield from (one for one in outline.groups if low <= one[0][0] and one[-1][1] <= high)
    if not outline.structured:
        yield [(row, row) for row in range(low, high + 1)]
