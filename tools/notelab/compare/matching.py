"""Which choice of one reading is which of the other: by lines and symbols, the best assignment."""

import msgspec

from notelab.compare.choices import Choice, Cited

_SAME_SYMBOL, _OVERLAP = 1.0, 2.0  # and for an overlap up to 1 more, by how much of both it is
_NOTHING = 1e-9  # what rounding alone may gain


Pair = tuple[Choice | None, Choice | None]


class Comparison(msgspec.Struct):
    """Pairs of a choice of yours and one of the solution's; who has no partner has None."""

    matched: list[Pair]
    missed: list[Pair]
    yours: list[Pair]


def compared(yours: list[Choice], theirs: list[Choice]) -> Comparison:
    """Pair choices so that what the pairs cover together is most; one has one partner at most."""
    gains = [[_likeness(mine, other) for other in theirs] for mine in yours]
    pairs = {i: j for i, j in _best(gains) if gains[i][j] > 0}
    found = set(pairs.values())
    return Comparison(
        matched=[(yours[i], theirs[j]) for i, j in sorted(pairs.items())],
        missed=[(None, other) for j, other in enumerate(theirs) if j not in found],
        yours=[(mine, None) for i, mine in enumerate(yours) if i not in pairs],
    )


def _likeness(one: Choice, other: Choice) -> float:
    """Return how much two choices cover in common, 0 where nothing."""
    rows = [[_shared(a, b) for b in other.citations] for a in one.citations]
    if not rows or not rows[0]:
        return 0.0
    best = [max(row) for row in rows] + [max(column) for column in zip(*rows, strict=True)]
    return sum(best) / len(best)


def _shared(a: Cited, b: Cited) -> float:
    if (a.source, a.path) != (b.source, b.path):
        return 0.0
    common = min(a.end, b.end) - max(a.start, b.start) + 1
    if common > 0:
        return _OVERLAP + common / (max(a.end, b.end) - min(a.start, b.start) + 1)
    return _SAME_SYMBOL if a.symbol and a.symbol == b.symbol else 0.0


def _best(gains: list[list[float]]) -> list[tuple[int, int]]:
    """Return the assignment of rows to columns with the greatest sum.

    Rows are taken in one by one, each along the path that gains most: it takes a column, whose row
    takes another, and so on to a free one. Of the paths, Bellman and Ford find the best.
    """
    if len(gains) > len(gains[0] if gains else []):
        turned = [list(column) for column in zip(*gains, strict=True)]
        return [(i, j) for j, i in _best(turned)]
    row_of: dict[int, int] = {}
    for row, gained in enumerate(gains):
        sums, came = list(gained), [-1] * len(gained)
        for _ in range(row):  # no path is longer than the rows that are in
            known = list(sums)
            for at, holder in row_of.items():
                for to, gain in enumerate(gains[holder]):
                    total = sums[at] - gains[holder][at] + gain
                    if total > sums[to] + _NOTHING:
                        sums[to], came[to] = total, at
            if sums == known:
                break
        at = max((to for to in range(len(gained)) if to not in row_of), key=sums.__getitem__)
        while came[at] >= 0:
            row_of[at] = row_of[came[at]]
            at = came[at]
        row_of[at] = row
    return [(row, column) for column, row in row_of.items()]
