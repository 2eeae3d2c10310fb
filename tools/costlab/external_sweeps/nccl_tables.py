"""Reading the tables that nccl-tests prints, in whatever log they are kept.

A launcher, a CI system or a mail puts words in front of each line: a rank, a time, a quote's mark.
How many words that is shows in the line of the table's head, which is found by its `# size count`
anywhere in a line.
"""

import re
from collections.abc import Iterator

from costlab.external_sweeps.rows import Row, SweepKey, to_seconds

PROGRAM = re.compile(r"\b(\w+)_perf(?:_mpi)?\b")
_TAG = re.compile(r"^\[\d+(?:,\d+)?\](?:<stdout>)?:? ?")  # of mpirun, which may touch the row
_HEAD = re.compile(r"#\s+(size\s+count\s.*)")
_DEVICES = re.compile(r"#\s+Using devices")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s")
_FAILED = re.compile(r"Test (?:CUDA|HIP|NCCL|RCCL) failure|\bTest failure\b|MPI_ABORT|srun: error")


class TableReader:
    """Reads the lines of a log.

    Attributes:
        notes: what the reader of the rows should know: torn rows, and a run that failed.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._failed = False
        self._jobs = 0
        self._bandwidths: list[tuple[float, float]] = []  # algorithm's and bus, GB/s

    @property
    def jobs_alone(self) -> int:
        """How many jobs of one rank each the log is of; 0 if ranks exchanged something.

        The bus bandwidth of n ranks is (n − 1)/n of something, which is 0 for one rank.
        """
        exchanged = any(bus for _, bus in self._bandwidths)
        measured = any(algorithm for algorithm, _ in self._bandwidths)
        return 0 if exchanged or not measured else max(1, self._jobs)

    def rows(self, lines: Iterator[str]) -> Iterator[Row]:
        """Yield the rows: of each head its columns, of each list of devices its ranks."""
        columns: list[str] = []
        words, operation, ranks = 0, "", 0
        for number, raw in enumerate(lines, 1):
            line = _TAG.sub("", raw)
            if named := PROGRAM.search(line):
                operation = named[1]
            if head := _HEAD.search(line):
                columns = ["time" if cell == "cputime" else cell for cell in head[1].split()]
                words = len(line[: head.start()].split())
            elif _DEVICES.search(line):
                self._jobs = self._jobs + 1 if ranks == 0 else 1
                ranks, columns = 0, []
            elif rank := _RANK.search(line):
                ranks = max(ranks, int(rank[1]) + 1)
            elif _FAILED.search(line) and not self._failed:
                self._failed = True
                self.notes.append(f"the run failed, line {number}: {line.strip()[:80]!r}")
            elif columns and _is_row(cells := line.split()[words:]):
                try:
                    yield from self._row(columns, cells, SweepKey(operation, ranks))
                except (ValueError, IndexError):
                    text = " ".join(cells)[:60]
                    self.notes.append(f"line {number}: {text!r} is no row of its table, left out")

    def _row(self, columns: list[str], cells: list[str], key: SweepKey) -> Iterator[Row]:
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
        if words == 0 and "redop" in columns:
            kind, reduction = (cells[columns.index(name)] for name in ("type", "redop"))
            key = SweepKey(key.operation, key.ranks, kind=kind, reduction=reduction)
        rows = []
        for way, start in zip(("out-of-place", "in-place"), starts, strict=True):
            if blank and way == "out-of-place":
                continue
            time = start - lacking
            self._bandwidths.append((float(cells[time + 1]), float(cells[time + 2])))
            wrong = cells[time + 3]
            rows.append(
                Row(
                    key.under(way), int(cells[0]), to_seconds(cells[time], 1e-6),
                    wrong != "N/A" and columns[start + 3] == "#wrong" and float(wrong) > 0,
                )
            )  # fmt: skip
        yield from rows


def _is_row(cells: list[str]) -> bool:
    """Return whether a line begins as a row does: with a size and a count."""
    return len(cells) > 1 and cells[0].isdigit() and cells[1].isdigit()
