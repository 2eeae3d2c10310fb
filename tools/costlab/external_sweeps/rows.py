"""Rows of a sweep that something else measured, and the sweeps that they make up."""

import math
from collections.abc import Iterable
from statistics import median

import msgspec


class SweepKey(msgspec.Struct, frozen=True):
    """What a row belongs to; an empty word, or no ranks, where the file doesn't say."""

    operation: str = ""
    ranks: int = 0
    way: str = ""  # out-of-place, in-place; of a bench's result the link
    kind: str = ""  # of the numbers: float, half
    reduction: str = ""  # sum, max

    def __str__(self) -> str:
        """As a table's title."""
        ranks = f"{self.ranks} ranks" if self.ranks else ""
        operation = self.operation or "a collective that the file doesn't name"
        words = (operation, self.reduction, self.kind, ranks, self.way)
        return ", ".join(word for word in words if word)

    def under(self, way: str) -> "SweepKey":
        """Return the key of the same rows, out of place or in place."""
        return msgspec.structs.replace(self, way=way)


class Row(msgspec.Struct):
    """One time; `wrong` if the result was not what it must be."""

    key: SweepKey
    size: int
    seconds: float
    wrong: bool = False


class Measured(msgspec.Struct):
    """One collective over ascending sizes: bytes [N], seconds [N], the median of a size's rows."""

    key: SweepKey
    sizes: list[int]
    seconds: list[float]
    wrong: int = 0  # rows whose results were not what they must be


def gather(rows: Iterable[Row]) -> list[Measured]:
    """Return the sweeps of some rows, in the order of their first ones.

    A title names the reduction and the type only where a file has several.
    """
    rows = list(rows)
    same = {
        field: ""
        for field in ("kind", "reduction")
        if len({getattr(r.key, field) for r in rows}) < 2
    }
    seconds_by_size: dict[SweepKey, dict[int, list[float]]] = {}
    wrong: dict[SweepKey, int] = {}
    for row in rows:
        key = msgspec.structs.replace(row.key, **same)
        if row.size:  # nccl-tests measures a size of nothing where ranks divide the least one so
            seconds_by_size.setdefault(key, {}).setdefault(row.size, []).append(row.seconds)
        wrong[key] = wrong.get(key, 0) + row.wrong
    return [
        Measured(key, sorted(sizes), [median(sizes[size]) for size in sorted(sizes)], wrong[key])
        for key, sizes in seconds_by_size.items()
    ]


def to_seconds(word: str | float, unit: float) -> float:
    """Return a time in seconds.

    Raises:
        ValueError: it is no time.
    """
    seconds = float(word) * unit
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"{word} is no time")
    return seconds
