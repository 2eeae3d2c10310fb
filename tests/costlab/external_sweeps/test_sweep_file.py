"""Other programs' files are read completely, or refused with a line number; no row is lost."""

import json
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costlab.external_sweeps import sweep_file
from costlab.external_sweeps.rows import Measured, SweepKey
from costlab.record.options import REFERENCE
from tests.costlab.external_sweeps.sweep_files import (
    COLUMNS,
    SIZES,
    TIMES,
    csv_of,
    nccl_json,
    nccl_text,
)

BEFORE_210 = nccl_text(columns=COLUMNS[:-1], cells=("float", "sum"), wrong="1e-05")
MADE = [pytest.approx(time * 1e-6) for time in TIMES]


ROWS = nccl_text(pad=12)


def prefixed(prefix: str, text: str) -> str:
    return "\n".join(prefix + line for line in text.splitlines()) + "\n"


def read(path: Path) -> list[Measured]:
    return sweep_file.read(path).measured


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sweep.log"


def read_refusal(file: Path, text: str | bytes) -> str:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(click.UsageError) as fault:
        read(file)
    return fault.value.message


@pytest.mark.parametrize(
    "text",
    [
        nccl_text(),
        BEFORE_210.replace("#wrong", "error"),
        nccl_text(cells=("float", "-1")),
        nccl_text(after=("2026-11-23", "10:00:00")),
        prefixed("[1,0]<stdout>:", nccl_text()),
        prefixed("0: ", ROWS),
        prefixed("2026-11-20T09:00:07.000Z ", ROWS),
        "It is slower than I expected:\n\n" + prefixed("> ", ROWS),
        prefixed("node-a:1001 [0] ", ROWS),
        prefixed("17: node-a: ", ROWS),
        "NCCL INFO Bootstrap\n\x1b[0m\n" + nccl_text() + "node: 3 jobs ended\n",
        nccl_text().replace(" time ", " cputime "),
    ],
    ids=["now", "before 2.10", "no redop", "timestamps", "mpirun's tag", "srun -l", "time stamps",
         "a mail", "NCCL's own label", "two labels", "in a log", "cpu time"],
)  # fmt: skip
def test_a_table_of_nccl_tests_gives_both_ways_in_seconds(file: Path, text: str) -> None:
    file.write_text(text)
    out, into = read(file)
    assert (out.key, into.key) == (
        SweepKey("all_reduce", 2, "out-of-place"), SweepKey("all_reduce", 2, "in-place"),
    )  # fmt: skip
    assert out.sizes == into.sizes == SIZES
    assert out.seconds == MADE
    assert into.seconds == [pytest.approx(time * 2e-6, rel=1e-3) for time in TIMES]
    assert out.wrong == into.wrong == 0


def test_what_has_no_out_of_place_way_is_read_in_place(file: Path) -> None:
    file.write_text(nccl_text("alltoall", only_in_place=True, ranks=4))
    (only,) = read(file)
    assert only.key == SweepKey("alltoall", 4, "in-place")
    assert only.seconds == [pytest.approx(time * 2e-6, rel=1e-3) for time in TIMES]


def test_two_collectives_in_one_file_stay_apart_and_a_repeated_one_is_its_median(
    file: Path,
) -> None:
    slower = nccl_text(times=[time * 3 for time in TIMES])
    file.write_text(nccl_text() + nccl_text("all_gather", ranks=8) + slower + slower)
    sweeps = {str(sweep.key): sweep for sweep in read(file)}
    assert list(sweeps) == [
        "all_reduce, 2 ranks, out-of-place", "all_reduce, 2 ranks, in-place",
        "all_gather, 8 ranks, out-of-place", "all_gather, 8 ranks, in-place",
    ]  # fmt: skip
    assert sweeps["all_gather, 8 ranks, out-of-place"].seconds == MADE
    thrice = sweeps["all_reduce, 2 ranks, out-of-place"]
    assert thrice.seconds == [pytest.approx(time * 3e-6) for time in TIMES]


def test_rows_with_wrong_results_are_counted(file: Path) -> None:
    file.write_text(nccl_text(wrong="3"))
    assert [sweep.wrong for sweep in read(file)] == [len(SIZES), 0]
    file.write_text(nccl_json(wrong=2.0))
    assert read(file)[0].wrong == len(SIZES)


@pytest.mark.parametrize("time", ["time", "cpu_time"])
def test_the_json_of_nccl_tests_is_read(file: Path, time: str) -> None:
    file.write_text(nccl_json(ranks=16, time=time))
    (only,) = read(file)
    assert only.key == SweepKey("all_reduce", 16, "out-of-place")
    assert only.sizes == SIZES and only.seconds == MADE


@pytest.mark.parametrize(
    ("head", "scale"),
    [("bytes,us", 1), ("size,time_ms", 1e-3), ("Bytes, Seconds", 1e-6), ("size(B),time(us)", 1)],
)
def test_a_csv_says_its_unit(file: Path, head: str, scale: float) -> None:
    file.write_text(csv_of(head, scale), "utf-8-sig")  # as a spreadsheet writes it
    (only,) = read(file)
    assert only.sizes == SIZES and only.seconds == MADE
    assert str(only.key) == "a collective that the file doesn't name"


def test_a_csv_may_name_its_collectives_and_ranks(file: Path) -> None:
    file.write_text("ranks,operation,bytes,us\n8,all_reduce,1024,9\n4,all_reduce,1024,7\n")
    assert [(str(sweep.key), sweep.seconds) for sweep in read(file)] == [
        ("all_reduce, 8 ranks", [pytest.approx(9e-6)]),
        ("all_reduce, 4 ranks", [pytest.approx(7e-6)]),
    ]


def test_a_result_of_this_bench_is_read_too() -> None:
    sweeps = {str(sweep.key): sweep for sweep in read(REFERENCE)}
    assert any(name.startswith("all_reduce, 2 ranks, gloo") for name in sweeps)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no CSV whose first line names"),
        ("bytes,time\n1024,3\n", "`seconds`, `ms`, `us`"),
        ("bytes,us,ms\n1024,3,1\n", "one of"),
        ("bytes,us\n", "no row with a size and a time"),
        ("bytes,us\n1024,3\n2048,0\n", "line 3: 0 is no time"),
        ("bytes,us\n1024,nan\n", "line 2: nan is no time"),
        ("bytes,us\n1024,-3\n", "line 2: -3 is no time"),
        ("bytes,us\n1024\n", "line 2:"),
        ("bytes,us\n10.5,3\n", "10.5 is no number of bytes"),
        ("bytes,us\n1e999,3\n", "line 2:"),
        ("ranks,bytes,us\nmany,1024,3\n", "line 2:"),
        ("bytes,us\n" + "".join(f"{size},3\n" for size in range(1, 80)), "79 sizes; keep 64"),
        (nccl_json()[:-40], "did the run end?"),
        (nccl_json().replace("30.1", "-30.1"), "results[0], out-of-place: "),
        ('{"a": 1}', "neither nccl-tests' JSON"),
        ('{"schema": 0}', "neither nccl-tests' JSON"),
        ('{"sections": {}}', "no row with a size and a time"),
        (nccl_text(times=["fast"] * len(SIZES), second="1.0"), "line 10: "),
        (b"\x00\xff\xfe" * 50, "no CSV whose first line names"),
    ],
)
def test_what_cannot_be_read_is_named(file: Path, text: str | bytes, reason: str) -> None:
    message = read_refusal(file, text)
    assert message.startswith("sweep.log: ") and reason in message


def test_a_json_beyond_what_is_read_whole_is_refused_unread(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with file.open("wb") as stream:  # sparse
        stream.write(b"{")
        stream.truncate((64 << 20) + 1)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("read whole"))
    with pytest.raises(click.UsageError, match="more than 64 MiB"):
        read(file)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_nothing_but_a_refusal_comes_of_anything(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "anything"
    for content in (
        data,
        b"bytes,us\n" + data,
        b'{"results": [' + data,
        nccl_text().encode() + data,
    ):
        file.write_bytes(content)
        try:
            read(file)
        except click.UsageError as fault:
            assert "anything" in fault.message


def test_a_json_string_is_not_run_through_as_text(file: Path) -> None:
    file.write_text(json.dumps({"results": [], "args": ["x"]}))
    with pytest.raises(click.UsageError, match="no row with a size"):
        read(file)


def test_reductions_and_types_are_never_pooled_and_named_where_they_differ(file: Path) -> None:
    tables = [nccl_text(cells=("float", reduction, "-1")) for reduction in ("max", "min")]
    file.write_text("".join(tables))
    assert [str(sweep.key) for sweep in read(file)][::2] == [
        "all_reduce, max, 2 ranks, out-of-place", "all_reduce, min, 2 ranks, out-of-place",
    ]  # fmt: skip
    file.write_text(nccl_text() + nccl_text(cells=("half", "sum", "-1")))
    assert [sweep.key.kind for sweep in read(file)] == ["float", "float", "half", "half"]


def test_a_torn_row_and_a_failed_run_are_said_and_the_other_rows_read(file: Path) -> None:
    torn = ROWS.splitlines()
    torn[11] = torn[11][:30] + "node-a:1:2 [0] transport/net.cc:1 WARN slow link\n sum -1 17.44"
    torn[-3:] = ["node-a: Test CUDA failure common.cu:1005 'out of memory'", ".. Test failure"]
    file.write_text("\n".join(torn))
    sweeps = sweep_file.read(file)
    assert [len(sweep.sizes) for sweep in sweeps.measured] == [len(SIZES) - 1] * 2
    row, failure = sweeps.notes
    assert row.startswith("line 12: ") and row.endswith("left out")
    assert failure.startswith("the run failed, line ") and "out of memory" in failure


def test_jobs_of_one_rank_measured_no_collective(file: Path) -> None:
    alone = nccl_text(ranks=1, busbw="0.00")
    assert "a job of one rank: nothing was exchanged" in read_refusal(file, alone)
    doubled = "".join(line + "\n" + line + "\n" for line in alone.splitlines())
    assert "2 jobs of one rank each: nothing was exchanged" in read_refusal(file, doubled)


def test_json_lines_are_read_and_a_broken_one_is_named(file: Path) -> None:
    def line(size: int, micro: float) -> str:
        row = {"numCycle": 0, "name": "ReduceScatter", "ranks": 8, "size": size, "type": "float"}
        return json.dumps(row | {"redop": "sum", "inPlace": 0, "time": micro, "algBw": 1.0})

    lines = [line(size, micro) for size, micro in zip(SIZES, TIMES, strict=True)]
    file.write_text("\n".join([*lines, lines[0][:40], ""]))
    sweeps = sweep_file.read(file)
    (only,) = sweeps.measured
    assert only.key == SweepKey("reduce_scatter", 8, "out-of-place")
    assert only.sizes == SIZES and only.seconds == MADE
    assert [note.partition(":")[0] for note in sweeps.notes] == [f"line {len(SIZES) + 1}"]


def test_an_operation_is_given_where_the_file_names_none(file: Path) -> None:
    file.write_text(csv_of())
    (only,) = sweep_file.read(file, "all_gather").measured
    assert only.key.operation == "all_gather"
    file.write_text(ROWS)
    assert sweep_file.read(file, "all_gather").measured[0].key.operation == "all_reduce"
