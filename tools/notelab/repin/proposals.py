"""Ranks the line ranges of the new file that an edited citation may have become."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

import msgspec

from notelab.cited.outline import Outline, Symbol
from notelab.repin.changes import Place
from notelab.repin.line_map import LineMap
from notelab.repin.version import TOKEN, CitedLines, Version

_MAX_PROPOSALS = 3
# Chosen by hand, and checked on the tuning half of tests/notelab/repin/sample.toml.
_TEXT_WEIGHT, _CONTEXT_WEIGHT, _ANCHOR_WEIGHT, _PLACE_WEIGHT = 0.55, 0.1, 0.1, 0.25
# With less of the old words (by weight) or a lower score, the citation counts as gone.
_MIN_COVERAGE = 0.34
_MIN_COVERAGE_IN_SLOT = 0.15  # is enough between the same two lines as before
_MIN_SCORE = 0.4


class Candidate(msgspec.Struct, frozen=True):
    """A place, how well it fits, and the share of the old words that it has."""

    score: float
    coverage: float
    place: Place


def rank_candidates(
    cited: CitedLines, new: Version, symbols: list[Symbol], line_map: LineMap | None
) -> list[Candidate]:
    """Return the runs of statements within some symbols, or within the whole file, best first.

    Args:
        cited: the citation.
        new: the file to search.
        symbols: the symbols of the file to search; if empty, the whole file is searched.
        line_map: the map of lines between the citation's file and `new`. None if `new` is another
            file; the lines are then expected at the same offset in the first symbol.
    """
    expected: tuple[int, int] | None = None
    if line_map is not None:
        expected = line_map.project(cited.first), line_map.project(cited.last)
    elif cited.symbol is not None and symbols:
        offset = symbols[0].first - cited.symbol.first
        expected = cited.first + offset, cited.last + offset
    scorer = _Scorer(cited, new, line_map, expected)
    spans = [*_candidate_spans(new, symbols, cited.last - cited.first + 1)]
    if line_map is not None and expected and 0 < expected[0] <= expected[1] <= len(new.lines):
        spans.append(expected)  # no part of the structure, perhaps
    candidates = [candidate for span in spans if (candidate := scorer.score(*span))]
    return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.place))


def select_best(candidates: list[Candidate]) -> list[Candidate]:
    """Return the first three places, best first, or none if no candidate is good enough."""
    best_by_place: dict[Place, Candidate] = {}
    for candidate in sorted(candidates, key=lambda scored: -scored.score):
        if len(best_by_place) < _MAX_PROPOSALS and (
            best_by_place or (candidate.coverage >= _MIN_COVERAGE and candidate.score >= _MIN_SCORE)
        ):
            best_by_place.setdefault(candidate.place, candidate)
    return [*best_by_place.values()]


class _Scorer:
    """Scores how well ranges of a file fit a citation."""

    def __init__(
        self,
        cited: CitedLines,
        new: Version,
        line_map: LineMap | None,
        expected: tuple[int, int] | None,
    ) -> None:
        self._cited, self._new, self._line_map, self._expected = cited, new, line_map, expected
        cited_lines = cited.old.lines[cited.first - 1 : cited.last]
        self._words = Counter(word for line in cited_lines for word in TOKEN.findall(line))
        self._weight = sum(cited.old.word_weights[word] for word in self._words.elements())
        self._context = _context_lines(cited.old, cited.first, cited.last)
        self._anchor_rows = [new.rows_by_name.get(name, []) for name in cited.anchors]
        self._rows: dict[int, tuple[float, list[str]]] = {}
        self._last_run, self._run_weight, self._shared_weight = (0, 0), 0.0, 0.0
        self._unmatched: dict[str, int] = {}
        self._inverse = line_map.invert() if line_map else None
        self._has_slot = expected is not None and self._is_in_slot(expected)

    def score(self, first: int, last: int) -> Candidate | None:
        """Score a range of lines; return None if it has almost nothing in common with them."""
        weight, common = self._weigh_run(first, last)
        text = 2 * common / (self._weight + weight) if self._weight + weight else 0.0
        is_expected = self._expected == (first, last)
        if text < 0.15 and not is_expected:
            return None
        above, below = _context_lines(self._new, first, last)
        context_share = ((above == self._context[0]) + (below == self._context[1])) / 2
        present = (bisect_left(r, first) < bisect_right(r, last) for r in self._anchor_rows)
        anchor_share = sum(present) / (len(self._anchor_rows) or 1)
        score = (
            _TEXT_WEIGHT * text + _CONTEXT_WEIGHT * context_share + _ANCHOR_WEIGHT * anchor_share
        )
        score += _PLACE_WEIGHT * self._closeness(first, last)
        coverage = common / self._weight if self._weight else 0.0
        if is_expected and self._has_slot and coverage >= _MIN_COVERAGE_IN_SLOT:
            coverage = max(coverage, _MIN_COVERAGE)
        return Candidate(score, coverage, Place(self._new.path, first, last))

    def _weigh_run(self, first: int, last: int) -> tuple[float, float]:
        """Return the weight of a range, and the weight of those of its words that the citation has.

        Ranges come grouped by their first line, with increasing last lines; each extends the one
        before.
        """
        last_first, last_last = self._last_run
        if last_first != first or last_last > last:
            self._run_weight, self._shared_weight, last_last = 0.0, 0.0, first - 1
            self._unmatched = dict(self._words)
        for row in range(last_last + 1, last + 1):
            row_weight, shared = self._weigh_row(row)
            self._run_weight += row_weight
            for word in shared:
                if self._unmatched[word]:
                    self._unmatched[word] -= 1
                    self._shared_weight += self._cited.old.word_weights[word]
        self._last_run = first, last
        return self._run_weight, self._shared_weight

    def _weigh_row(self, row: int) -> tuple[float, list[str]]:
        """Return the weight of a line, and those of its words that the citation has.

        A line that was elsewhere in the old file cannot be what the citation became.
        """
        if row not in self._rows:
            weight, words = self._cited.old.word_weights.weigh_line(self._new.lines[row - 1])
            origin = self._inverse.unchanged(row, row) if self._inverse else None
            is_elsewhere = (
                origin is not None and not self._cited.first <= origin <= self._cited.last
            )
            shared = [] if is_elsewhere else [word for word in words if word in self._words]
            self._rows[row] = weight, shared
        return self._rows[row]

    def _is_in_slot(self, expected: tuple[int, int]) -> bool:
        """Return whether the expected lines are between the same two lines as before."""
        above, below = self._cited.first - 1, self._cited.last + 1
        if self._line_map is None or not above or below > len(self._cited.old.lines):
            return False
        unchanged = self._line_map.unchanged(above, above), self._line_map.unchanged(below, below)
        return unchanged == (expected[0] - 1, expected[1] + 1)

    def _closeness(self, first: int, last: int) -> float:
        if self._expected is None:
            return 0
        distance = abs(self._expected[0] - first) + abs(self._expected[1] - last)
        return 1 / (1 + distance / max(self._cited.last - self._cited.first + 1, 2))


def _context_lines(version: Version, first: int, last: int) -> tuple[str, str]:
    """Return the nearest non-blank lines before and after a range."""
    lines = version.lines
    above = (line for row in range(first - 2, -1, -1) if (line := lines[row].strip()))
    below = (line for row in range(last, len(lines)) if (line := lines[row].strip()))
    return next(above, ""), next(below, "")


def _candidate_spans(new: Version, symbols: list[Symbol], size: int) -> Iterator[tuple[int, int]]:
    """Yield each range of sibling statements or parts whose size is plausible."""
    min_lines, max_lines = size / 3 - 1, size * 2.5 + 4
    bounds = [(symbol.first, symbol.last) for symbol in symbols] or [(1, new.outline.lines)]
    seen: set[tuple[int, int]] = set()
    for run in (run for low, high in bounds for run in sibling_runs(new.outline, low, high)):
        for index, (run_first, _) in enumerate(run):
            for first in {run_first, _comment_above(new.lines, run_first)}:
                for _, last in run[index:]:
                    if last - first + 1 > max_lines:
                        break
                    if last - first + 1 >= min_lines and (first, last) not in seen:
                        seen.add((first, last))
                        yield first, last


def _comment_above(lines: list[str], row: int) -> int:
    while row > 1 and lines[row - 2].lstrip().startswith(("#", "//")):
        row -= 1
    return row


def sibling_runs(outline: Outline, low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    """Yield lists of siblings between two lines: statements of a block, or parts of a statement."""
    # Of each open parent: its end and its children.
    open_parents: list[tuple[int, list[tuple[int, int]]]] = [(high, [])]
    for first, last in outline.statements:
        if first < low or last > high:
            continue
        while len(open_parents) > 1 and first > open_parents[-1][0]:
            yield open_parents.pop()[1]
        open_parents[-1][1].append((first, last))
        open_parents.append((last, []))
    yield from (children for _, children in open_parents)
    yield from (group for group in outline.groups if low <= group[0][0] and group[-1][1] <= high)
    if not outline.structured:
        yield [(row, row) for row in range(low, high + 1)]
