"""Reading a sweep that something else measured: nccl-tests' text or JSON, a CSV, a bench's result.

Which it is shows in the file. A row that can't be read is named by its line: a sweep that lost a
row in silence is fitted all the same, and wrongly.
"""

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import click
import msgspec

MOST_SIZES = 64  # the cuts of a fit are sought among all pairs of sizes
MOST_BYTES = 64 << 20  # of a JSON, which is read whole
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "usec": 1e-6} | _UNITS
_SIZE = ("bytes", "size", "size_bytes", "size(b)")
_PREFIX = re.compile(r"^\[\d+(?:,\d+)?\](?:<stdout>)?:? ?")  # of mpirun --tag-output
_PROGRAM = re.compile(r"\b(\w+)_perf(?:_mpi)?\b")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s")


class SweepKey(msgspec.Struct, frozen=True):
    """What a row belongs to; an empty word, or no ranks, where the file doesn't say."""

    operation: str = ""
    ranks: int = 0
    way: str = ""  # out-of-place, in-place; of a bench's result the link

    def __str__(self) -> str:
        """As a table's title."""
        ranks = f"{self.ranks} ranks" if self.ranks else ""
        words = (self.operation or "a collective that the file doesn't name", ranks, self.way)
        return ", ".join(word for word in words if word)


class Measured(msgspec.Struct):
    """One collective over ascending sizes: bytes [N], seconds [N], the median of a size's rows."""

    key: SweepKey
    sizes: list[int]
    seconds: list[float]
    wrong: int = 0  # rows whose results were not what they must be


class _Row(msgspec.Struct):
    key: SweepKey
    size: int
    seconds: float
    wrong: bool = False


def read(path: Path) -> list[Measured]:
    """Return the sweeps of a file, in the order in which they stand there.

    Raises:
        click.UsageError: it is none of the formats, or a row of it can't be read.
    """
    with path.open("rb") as stream:
        first = stream.read(4096).lstrip()[:1]
    if first == b"{":
        rows = list(_json(path))
    else:
        # A job's log may hold any bytes; numbers don't.
        with path.open(encoding="utf-8", errors="replace") as lines:
            rows = list(_text(lines, path))
        if not rows:
            with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
                rows = list(_csv(lines, path))
    return _gathered(rows, path)


def _gathered(rows: list[_Row], path: Path) -> list[Measured]:
    seconds_by_size: dict[SweepKey, dict[int, list[float]]] = {}
    wrong: dict[SweepKey, int] = {}
    for row in rows:
        if row.size:  # nccl-tests measures a size of nothing where ranks divide the least one so
            seconds_by_size.setdefault(row.key, {}).setdefault(row.size, []).append(row.seconds)
        wrong[row.key] = wrong.get(row.key, 0) + row.wrong
    if not seconds_by_size:
        raise _unread(path, "no row with a size and a time")
    for key, sizes in seconds_by_size.items():
        if len(sizes) > MOST_SIZES:
            raise _unread(path, f"{key}: {len(sizes)} sizes; keep {MOST_SIZES}, powers of two say")
    return [
        Measured(key, sorted(sizes), [median(sizes[size]) for size in sorted(sizes)], wrong[key])
        for key, sizes in seconds_by_size.items()
    ]


def _text(lines: Iterator[str], path: Path) -> Iterator[_Row]:
    """Yield the rows of nccl-tests' tables: of each header its columns, of each table its ranks."""
    columns: list[str] = []
    operation, ranks = "", 0
    for number, raw in enumerate(lines, 1):
        line = _PREFIX.sub("", raw).strip()
        cells = line.lstrip("#").split()
        if named := _PROGRAM.search(line):
            operation = named[1]
        if line.startswith("# Using devices"):
            ranks, columns = 0, []
        elif rank := _RANK.match(line):
            ranks = max(ranks, int(rank[1]) + 1)
        elif cells[:2] == ["size", "count"] and line.startswith("#"):
            columns = ["time" if cell == "cputime" else cell for cell in cells]
        elif columns and cells[0:1] and cells[0].isdigit() and not line.startswith("#"):
            key = SweepKey(operation, ranks)
            try:
                yield from _table_row(columns, cells, key)
            except (ValueError, IndexError):
                raise _unread(
                    path, f"line {number}: {line[:60]!r} is no row of its table"
                ) from None


def _table_row(columns: list[str], cells: list[str], key: SweepKey) -> Iterator[_Row]:
    """Yield a row's out-of-place time and its in-place one.

    A column before the times may be blank (`redop` of an all-gather), and so may be all that is
    out of place, of a collective that has no such way.
    """
    starts = [place for place, name in enumerate(columns) if name == "time"]
    group = starts[1] - starts[0]
    lacking = max(0, len(columns) - len(cells))
    blank, words = lacking >= group, lacking % group
    if lacking > group + 2 or words > 2:
        raise ValueError("too few cells")
    for way, start in zip(("out-of-place", "in-place"), starts, strict=True):
        if blank and way == "out-of-place":
            continue
        time = start - lacking
        wrong = cells[time + 3]
        yield _Row(
            msgspec.structs.replace(key, way=way), int(cells[0]), _seconds(cells[time], 1e-6),
            wrong != "N/A" and columns[start + 3] == "#wrong" and float(wrong) > 0,
        )  # fmt: skip


def _seconds(word: str | float, unit: float) -> float:
    seconds = float(word) * unit
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"{word} is no time")
    return seconds


class _Way(msgspec.Struct):
    time: float | None = None
    cpu_time: float | None = None
    nwrong: float | None = None


class _Result(msgspec.Struct):
    size: int
    out_of_place: _Way | None = None
    in_place: _Way | None = None


class _Config(msgspec.Struct):
    devices: list[msgspec.Raw] = []


class _NcclTests(msgspec.Struct):
    results: list[_Result]
    args: list[str] = []
    config: _Config = msgspec.field(default_factory=_Config)


def _json(path: Path) -> Iterator[_Row]:
    if path.stat().st_size > MOST_BYTES:
        raise _unread(
            path, f"a JSON of more than {MOST_BYTES >> 20} MiB; run nccl-tests without -I"
        )
    data = path.read_bytes()
    try:
        document = msgspec.json.decode(data, type=_NcclTests)
    except msgspec.ValidationError as fault:
        yield from _bench(path, str(fault))
        return
    except msgspec.DecodeError as fault:
        raise _unread(path, f"broken JSON ({fault}): did the run end?") from None
    named = _PROGRAM.search(" ".join(document.args))
    operation = named[1] if named else ""
    for place, row in enumerate(document.results):
        for name, way in (("out-of-place", row.out_of_place), ("in-place", row.in_place)):
            if way is None:
                continue
            key = SweepKey(operation, len(document.config.devices), name)
            time = way.cpu_time if way.time is None else way.time
            try:
                seconds = _seconds(math.nan if time is None else time, 1e-6)
            except ValueError as fault:
                raise _unread(path, f"results[{place}], {name}: {fault}") from None
            yield _Row(key, row.size, seconds, bool(way.nwrong))


def _bench(path: Path, otherwise: str) -> Iterator[_Row]:
    """Yield the sweeps of a result of this bench."""
    from costlab.record.result import ResultError, load
    from costlab.sections.fit.fit import sweeps

    try:
        by_name = sweeps(load(path).metrics())
    except ResultError:
        raise _unread(path, f"neither nccl-tests' JSON ({otherwise}) nor a result") from None
    for sweep in by_name.values():
        key = SweepKey(sweep.op, sweep.ranks, f"{sweep.link}, {sweep.device}")
        for size, seconds in zip(sweep.sizes, sweep.seconds, strict=True):
            yield _Row(key, size, seconds)


def _csv(lines: Iterator[str], path: Path) -> Iterator[_Row]:
    reader = csv.DictReader(lines, restval="")
    names = {(name or "").strip().lower(): name for name in reader.fieldnames or ()}
    size = next((names[name] for name in _SIZE if name in names), None)
    times = [(names[name], unit) for name, unit in _timed(names)]
    if size is None or len(times) != 1:
        raise _unread(
            path,
            "no table of nccl-tests, and no CSV whose first line names a column `bytes` and one of "
            "`seconds`, `ms`, `us` (and `operation`, `ranks`, where it has them)",
        )
    (time, unit), operation, ranks = times[0], names.get("operation"), names.get("ranks")
    for row in reader:
        try:
            key = SweepKey(row[operation] if operation else "", int(row[ranks]) if ranks else 0)
            count = float(row[size])
            if count < 0 or count != int(count):
                raise ValueError(f"{row[size]} is no number of bytes")
            yield _Row(key, int(count), _seconds(row[time], unit))
        except (ValueError, TypeError, OverflowError) as fault:
            raise _unread(path, f"line {reader.line_num}: {fault}") from None


def _timed(names: dict[str, str]) -> Iterator[tuple[str, float]]:
    """Yield the columns that are times and name their unit: us, time_us, time(us)."""
    for name in names:
        unit = name.removeprefix("time").strip("_ ()[]")
        if unit in _SECONDS:
            yield name, _SECONDS[unit]


def _unread(path: Path, why: str) -> click.UsageError:
    return click.UsageError(f"{path.name}: {why}")
