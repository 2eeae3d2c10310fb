"""Reading a sweep that something else measured: nccl-tests' text or JSON, a CSV, a bench's result.

Which it is shows in the file. A row that can't be read is named by its line: a sweep that lost a
row in silence is fitted all the same, and wrongly.
"""

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from costlab.external_sweeps.nccl_tables import PROGRAM, TableReader
from costlab.external_sweeps.rows import Measured, Row, SweepKey, gather, to_seconds

MOST_SIZES = 64  # the cuts of a fit are sought among all pairs of sizes
MOST_BYTES = 64 << 20  # of a JSON, which is read whole
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "usec": 1e-6} | _UNITS
_SIZE = ("bytes", "size", "size_bytes", "size(b)")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Sweeps(msgspec.Struct):
    """The sweeps of a file, in the order in which they stand there, and notes on torn rows."""

    measured: list[Measured]
    notes: list[str]


def read(path: Path, operation: str = "") -> Sweeps:
    """Return the sweeps of a file.

    Args:
        path: the file.
        operation: the collective of rows whose file doesn't name it.

    Raises:
        click.UsageError: it is none of the formats, or a row of it can't be read.
    """
    notes: list[str] = []
    with path.open("rb") as stream:
        first = stream.read(4096).lstrip()[:1]
    if first == b"{":
        rows = list(_json(path, notes))
    else:
        rows = _tables(path, notes)
        if not rows:
            with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
                rows = list(_csv(lines, path))
    for row in rows:
        if not row.key.operation:
            row.key = msgspec.structs.replace(row.key, operation=operation)
    measured = gather(rows)
    if not measured:
        raise _unread(path, "no row with a size and a time")
    for sweep in measured:
        if len(sweep.sizes) > MOST_SIZES:
            many = f"{sweep.key}: {len(sweep.sizes)} sizes"
            raise _unread(path, f"{many}; keep {MOST_SIZES}, powers of two say")
    return Sweeps(measured, notes)


def _tables(path: Path, notes: list[str]) -> list[Row]:
    """Return the rows of nccl-tests' tables in a log, if there are any."""
    reader = TableReader()
    # A job's log may hold any bytes; numbers don't.
    with path.open(encoding="utf-8", errors="replace") as lines:
        rows = list(reader.rows(lines))
    if reader.notes and not rows:
        raise _unread(path, reader.notes[0])
    if jobs := reader.jobs_alone:
        alone = "a job of one rank" if jobs == 1 else f"{jobs} jobs of one rank each"
        raise _unread(
            path, f"{alone}: nothing was exchanged (the bus bandwidth is 0 in every row), "
            "so no collective was measured",
        )  # fmt: skip
    notes += reader.notes
    return rows


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


def _json(path: Path, notes: list[str]) -> Iterator[Row]:
    if path.stat().st_size > MOST_BYTES:
        raise _unread(
            path, f"a JSON of more than {MOST_BYTES >> 20} MiB; run nccl-tests without -I"
        )
    data = path.read_bytes()
    if _has_json_lines(data):
        yield from _json_lines(data, notes)
        return
    try:
        document = msgspec.json.decode(data, type=_NcclTests)
    except msgspec.ValidationError as fault:
        yield from _bench(path, str(fault))
        return
    except msgspec.DecodeError as fault:
        raise _unread(path, f"broken JSON ({fault}): did the run end?") from None
    named = PROGRAM.search(" ".join(document.args))
    operation = named[1] if named else ""
    for place, row in enumerate(document.results):
        for name, way in (("out-of-place", row.out_of_place), ("in-place", row.in_place)):
            if way is None:
                continue
            key = SweepKey(operation, len(document.config.devices), name)
            time = way.cpu_time if way.time is None else way.time
            try:
                seconds = to_seconds(math.nan if time is None else time, 1e-6)
            except ValueError as fault:
                raise _unread(path, f"results[{place}], {name}: {fault}") from None
            yield Row(key, row.size, seconds, bool(way.nwrong))


class _Line(msgspec.Struct):
    """A line of RCCL's tests: one row, in microseconds."""

    name: str
    ranks: int
    size: int
    time: float
    type: str = ""
    redop: str = ""
    in_place: int = msgspec.field(name="inPlace", default=0)
    wrong: int = msgspec.field(name="numWrong", default=0)


def _has_json_lines(data: bytes) -> bool:
    """Return whether the first line is an object of its own with a row's name and size."""
    try:
        msgspec.json.decode(data.lstrip().partition(b"\n")[0], type=_Line)
    except msgspec.MsgspecError:
        return False
    return True


def _json_lines(data: bytes, notes: list[str]) -> Iterator[Row]:
    """Yield the rows of a file with a JSON object on each line."""
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=_Line)
            operation = _CAPITAL.sub("_", row.name).lower()
            way = "in-place" if row.in_place else "out-of-place"
            key = SweepKey(operation, row.ranks, way, row.type, row.redop)
            yield Row(key, row.size, to_seconds(row.time, 1e-6), row.wrong > 0)
        except (msgspec.MsgspecError, ValueError) as fault:
            notes.append(f"line {number}: {fault}, left out")


def _bench(path: Path, otherwise: str) -> Iterator[Row]:
    """Yield the sweeps of a result of this bench."""
    from costlab.record.result import ResultError, load
    from costlab.sections.fit import sweeps

    try:
        by_name = sweeps(load(path).metrics())
    except ResultError:
        raise _unread(path, f"neither nccl-tests' JSON ({otherwise}) nor a result") from None
    for sweep in by_name.values():
        key = SweepKey(sweep.op, sweep.ranks, f"{sweep.link}, {sweep.device}")
        for size, seconds in zip(sweep.sizes, sweep.seconds, strict=True):
            yield Row(key, size, seconds)


def _csv(lines: Iterator[str], path: Path) -> Iterator[Row]:
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
            yield Row(key, int(count), to_seconds(row[time], unit))
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
