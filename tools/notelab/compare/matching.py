"""Matches the choices of two readings by lines and symbols: the best assignment."""

import msgspec

from notelab.compare.choices import Choice, CitedRange

# An overlap gains up to 1 more, by its share of all lines that the two ranges cover.
_SAME_SYMBOL_GAIN, _OVERLAP_GAIN = 1.0, 2.0
_ROUNDING = 1e-9  # a smaller gain is only a rounding error


Pair = tuple[Choice | None, Choice | None]


class Comparison(msgspec.Struct):
    """Pairs of the learner's choice and the solution's; the partner is None if there is none."""

    matched: list[Pair]
    missed: list[Pair]
    own_only: list[Pair]


def match_choices(own_choices: list[Choice], solution_choices: list[Choice]) -> Comparison:
    """Pair choices so that the pairs cover most in common; each choice has at most one partner."""
    gains = [
        [_similarity(choice, solution) for solution in solution_choices] for choice in own_choices
    ]
    pairs = {i: j for i, j in _best_assignment(gains) if gains[i][j] > 0}
    matched_columns = set(pairs.values())
    return Comparison(
        matched=[(own_choices[i], solution_choices[j]) for i, j in sorted(pairs.items())],
        missed=[
            (None, solution)
            for j, solution in enumerate(solution_choices)
            if j not in matched_columns
        ],
        own_only=[(choice, None) for i, choice in enumerate(own_choices) if i not in pairs],
    )


def _similarity(first: Choice, second: Choice) -> float:
    """Return how much two choices cover in common, or 0."""
    rows = [[_overlap(a, b) for b in second.citations] for a in first.citations]
    if not rows or not rows[0]:
        return 0.0
    best_overlaps = [max(row) for row in rows] + [max(column) for column in zip(*rows, strict=True)]
    return sum(best_overlaps) / len(best_overlaps)


def _overlap(a: CitedRange, b: CitedRange) -> float:
    if (a.source, a.path) != (b.source, b.path):
        return 0.0
    common = min(a.end, b.end) - max(a.start, b.start) + 1
    if common > 0:
        return _OVERLAP_GAIN + common / (max(a.end, b.end) - min(a.start, b.start) + 1)
    return _SAME_SYMBOL_GAIN if a.symbol and a.symbol == b.symbol else 0.0


def _best_assignment(gains: list[list[float]]) -> list[tuple[int, int]]:
    """Return the assignment of rows to columns with the greatest sum.

    Rows are added one by one, each along the path that gains most: the row takes a column, the row
    that had it takes another, and so on until a column is free. The Bellman-Ford algorithm finds
    the best path.
    """
    if len(gains) > len(gains[0] if gains else []):
        transposed = [list(column) for column in zip(*gains, strict=True)]
        return [(i, j) for j, i in _best_assignment(transposed)]
    row_of: dict[int, int] = {}
    for row, row_gains in enumerate(gains):
        sums, previous = list(row_gains), [-1] * len(row_gains)
        for _ in range(row):  # no path is longer than the number of assigned rows
            sums_before = list(sums)
            for at, holding_row in row_of.items():
                for to, gain in enumerate(gains[holding_row]):
                    total = sums[at] - gains[holding_row][at] + gain
                    if total > sums[to] + _ROUNDING:
                        sums[to], previous[to] = total, at
            if sums == sums_before:
                break
        at = max((to for to in range(len(row_gains)) if to not in row_of), key=sums.__getitem__)
        while previous[at] >= 0:
            row_of[at] = row_of[previous[at]]
            at = previous[at]
        row_of[at] = row
    return [(row, column) for column, row in row_of.items()]
