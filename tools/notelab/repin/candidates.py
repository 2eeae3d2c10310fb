"""Which lines of the new file may an edited citation have become? Best first."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from math import log

import msgspec

from notelab.cited.outline import Outline, Symbol
from notelab.repin.hunks import Map

_TOKEN = re.compile(r"[^\W_]+|[^\w\s]")
_MOST = 3
# Weights and floor are by judgement, not fitted.
_TEXT, _CONTEXT, _ANCHORS, _PLACE = 0.55, 0.1, 0.1, 0.25
_FLOOR = 0.34  # of the old words, by their weight, that must still stand; else it is gone


class Weighing:
    """How much each word tells in a file: rare ones much, those on every line next to nothing."""

    def __init__(self, lines: list[str]) -> None:
        """Count on how many lines each word stands."""
        on = Counter(word for line in lines for word in set(_TOKEN.findall(line)))
        self._on, self._lines = on, len(lines)

    def words(self, lines: Iterable[str]) -> Counter[str]:
        """Return the words of some lines, each as often as it stands there."""
        return Counter(word for line in lines for word in _TOKEN.findall(line))

    def weight(self, words: Counter[str]) -> float:
        """Return what words weigh together."""
        return sum(count * self._of(word) for word, count in words.items())

    def alike(self, one: Counter[str], other: Counter[str]) -> float:
        """Return which share of two ranges' words, by weight, they have in common."""
        both = self.weight(one) + self.weight(other)
        return 2 * self.weight(one & other) / both if both else 0.0

    def left(self, old: Counter[str], new: Counter[str]) -> float:
        """Return which share of the old words, by weight, stands among the new."""
        whole = self.weight(old)
        return self.weight(old & new) / whole if whole else 0.0

    def _of(self, word: str) -> float:
        rare = log((self._lines + 1) / (self._on.get(word, 0) + 1)) + 0.05
        return rare if word[0].isalnum() else rare / 4


class Side(msgspec.Struct):
    """A file at one commit: its text by lines and its structure."""

    path: str
    lines: list[str]
    outline: Outline


class Asked(msgspec.Struct):
    """An edited citation: the old side, its lines, the names that anchor it."""

    old: Side
    first: int
    last: int
    anchors: list[str]
    weighing: Weighing


class Scored(msgspec.Struct, frozen=True):
    """A candidate, how well it fits, and how much of the old words it has."""

    score: float
    left: float
    path: str
    first: int
    last: int


def ranked(asked: Asked, new: Side, within: list[Symbol], through: Map | None) -> list[Scored]:
    """Return the runs of statements in some symbols (none: the whole file), best first."""
    size = asked.last - asked.first + 1
    words = asked.weighing.words(asked.old.lines[asked.first - 1 : asked.last])
    before, after = _context(asked.old, asked.first, asked.last)
    goal = (through.toward(asked.first), through.toward(asked.last)) if through else None
    found: list[Scored] = []
    per_line: dict[int, Counter[str]] = {}
    for first, last in _spans(new, within, size):
        said = _words(new, first, last, asked.weighing, per_line)
        text = asked.weighing.alike(words, said)
        if text < 0.15 and goal != (first, last):
            continue
        score = _TEXT * text + _CONTEXT * _near(new, first, last, before, after)
        standing = new.outline.names_between(first, last)
        held = sum(name in standing for name in asked.anchors) / len(asked.anchors or [1])
        score += _ANCHORS * held
        score += _PLACE * _closeness(goal, first, last, size) if goal else 0
        left = asked.weighing.left(words, said)
        found.append(Scored(score, left, new.path, first, last))
    return sorted(found, key=lambda one: (-one.score, one.first, one.last))


def best(found: list[Scored]) -> list[Scored]:
    """Return the first three that overlap little with a better one; none where nothing is left."""
    kept: list[Scored] = []
    for one in sorted(found, key=lambda each: -each.score):
        if len(kept) < _MOST and (one.left >= _FLOOR or kept):
            kept.append(one)
    return kept


def _words(
    new: Side, first: int, last: int, weighing: Weighing, per_line: dict[int, Counter[str]]
) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in range(first, last + 1):
        if row not in per_line:
            per_line[row] = weighing.words([new.lines[row - 1]])
        total.update(per_line[row])
    return total


def _closeness(goal: tuple[int, int], first: int, last: int, size: int) -> float:
    off = abs(goal[0] - first) + abs(goal[1] - last)
    return 1 / (1 + off / max(size, 2))


def _context(side: Side, first: int, last: int) -> tuple[str, str]:
    """Return the nearest lines before and after a range that hold something."""
    above = (line.strip() for line in reversed(side.lines[: first - 1]) if line.strip())
    below = (line.strip() for line in side.lines[last:] if line.strip())
    return next(above, ""), next(below, "")


def _near(new: Side, first: int, last: int, before: str, after: str) -> float:
    above, below = _context(new, first, last)
    return ((above == before) + (below == after)) / 2


def _spans(new: Side, within: list[Symbol], size: int) -> Iterator[tuple[int, int]]:
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
    inside = [rows for rows in outline.statements if low <= rows[0] and rows[1] <= high]
    opened: list[tuple[int, list[tuple[int, int]]]] = []  # the last line of a parent, its children
    done: list[list[tuple[int, int]]] = []
    opened.append((high, []))
    for first, last in inside:
        while len(opened) > 1 and first > opened[-1][0]:
            done.append(opened.pop()[1])
        opened[-1][1].append((first, last))
        opened.append((last, []))
    yield from done
    yield from (children for _, children in opened)
    yield from ([(a, b) for a, b in group] for group in outline.groups if _in(group, low, high))
    if not outline.structured:
        yield [(row, row) for row in range(low, high + 1)]


def _in(group: list[tuple[int, int]], low: int, high: int) -> bool:
    return bool(group) and low <= group[0][0] and group[-1][1] <= high
