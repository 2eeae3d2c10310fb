"""Which choice of one reading is which of the other: by lines and symbols, the best assignment."""

import msgspec

from notelab.compare.choices import Choice, Cited

_SAME_SYMBOL, _OVERLAP = 1.0, 2.0  # and for an overlap up to 1 more, by how much of both it is


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
    """Return the assignment of rows to columns with the greatest sum (Kuhn and Munkres).

    Rows are taken in one by one; each time the cheapest alternating path to a free column is
    followed, as Dijkstra would, over costs that the potentials keep from being negative.
    """
    if not gains or not gains[0]:
        return []
    if len(gains) > len(gains[0]):
        turned = [list(column) for column in zip(*gains, strict=True)]
        return [(i, j) for j, i in _best(turned)]
    rows, columns = len(gains), len(gains[0])
    of_row, of_column = [0.0] * (rows + 1), [0.0] * (columns + 1)
    holds = [0] * (columns + 1)  # the row that each column is given to; both count from 1
    for row in range(1, rows + 1):
        holds[0] = row
        least, came = [float("inf")] * (columns + 1), [0] * (columns + 1)
        seen, at = {0}, 0
        while holds[at]:
            row_at, free = holds[at], [j for j in range(1, columns + 1) if j not in seen]
            for j in free:
                cost = -gains[row_at - 1][j - 1] - of_row[row_at] - of_column[j]
                if cost < least[j]:
                    least[j], came[j] = cost, at
            nearest = min(free, key=least.__getitem__)
            step = least[nearest]
            for j in seen:
                of_row[holds[j]] += step
                of_column[j] -= step
            for j in free:
                least[j] -= step
            seen.add(nearest)
            at = nearest
        while at:
            holds[at] = holds[came[at]]
            at = came[at]
    return [(holds[j] - 1, j - 1) for j in range(1, columns + 1) if holds[j]]
