"""An interrupted run prints one clear line, keeps its metrics, and exits with another status than
0.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from costlab.record.result import Result, Section, load, save
from tests.costlab.run.forked_bench import PATH, ROOT, run_bench
from tests.running import run_program

# The command line as it is, with `counts` replaced by a section that breaks, and BENCH its process.
BENCH = """
import os, sys
os.environ.setdefault("BENCH", str(os.getpid()))  # ranks import this file too
from costlab.sections import plan
plan.MODULES["counts"] = "tests.costlab.run.broken_section"
if __name__ == "__main__":
    from costlab.cli import main
    sys.argv = ["bench", *sys.argv[1:]]
    main()
"""
FULL = """
import errno
from costlab.run import run
from costlab.record.result import save as true
def save(result, path):
    if result.sections and path.name == "one.json":
        real = os.fsync
        def full(_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync = full
        try: return true(result, path)
        finally: os.fsync = real
    return true(result, path)
run.save = save
"""

# Asked to end while a section's result is on its way to the disk.
ASKED = """
import signal
from costlab.run import run
from costlab.record.result import save as true
def save(result, path):
    if result.sections:
        real = os.fsync
        def asked(file):
            os.kill(os.getpid(), signal.Signals[os.environ["REQUEST"]])
            real(file)
        os.fsync = asked
        try: return true(result, path)
        finally: os.fsync = real
    return true(result, path)
run.save = save
"""


def error_lines(done: Any) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


def load_partial(path: Path) -> Result:
    result = load(path)
    section = result.sections["counts"]
    assert section.status == "partial"
    assert [metric.id for metric in section.metrics] == ["count.before"]
    return result


@pytest.mark.parametrize(
    ("fault", "words", "status"),
    [
        ("killed", "counts: rank 1 was killed by SIGKILL", 1),
        pytest.param("hangs", "rank 1 hangs", 1, marks=pytest.mark.ci),
        ("interrupted", "interrupted", 130),
        ("asked to end", "asked to end (SIGTERM)", 130),
    ],
)
def test_a_run_that_breaks_off_keeps_what_it_measured(
    tmp_path: Path, fault: str, words: str, status: int
) -> None:
    timeout = "4" if fault == "hangs" else "60"  # who waits in vain says so
    done = run_bench(tmp_path, "counts", "--timeout", timeout, FAULT=fault)
    assert done.returncode == status
    (line,) = error_lines(done)
    assert words in line
    assert "Traceback" not in done.stderr
    note = load_partial(tmp_path / "one.json").sections["counts"].note
    assert note
    assert note in line or words in note


@pytest.mark.parametrize(
    ("fault", "request_"),
    [
        ("none", "SIGTERM"),
        ("killed", "SIGINT"),
        ("killed", "SIGTERM"),
        ("none", "SIGINT"),
    ],
)
def test_a_request_to_end_waits_until_what_was_measured_is_written(
    tmp_path: Path, request_: str, fault: str
) -> None:
    done = run_bench(tmp_path, "counts", more=ASKED, FAULT=fault, REQUEST=request_)
    assert done.returncode == 130, done.stderr
    (line,) = error_lines(done)
    assert f"what was measured is in {tmp_path / 'one.json'} (see --resume)" in line
    assert "Traceback" not in done.stderr
    section = load(tmp_path / "one.json").sections["counts"]
    assert section.metrics[0].id == "count.before"
    assert not list(tmp_path.glob("one.json?*")), "no file that was begun is left"


def test_a_run_that_broke_off_goes_on_where_it_ended(tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    run_bench(tmp_path, "counts", "--seed", "7", FAULT="killed")
    first = load_partial(out)
    first.sections["pipeline"] = Section(status="complete", seconds=3.0)
    save(first, out)
    done = run_bench(tmp_path, "counts", "--resume", str(out), FAULT="none")
    assert (done.returncode, error_lines(done)) == (0, [])
    second = load(out)
    assert [m.id for m in second.sections["counts"].metrics] == ["count.before", "count.after"]
    assert second.sections["pipeline"] == first.sections["pipeline"]  # what was there stays
    assert second.settings == first.settings
    assert second.provenance.pop("resumed").startswith("20")
    assert second.provenance == first.provenance
    again = run_bench(
        tmp_path, "counts", "--resume", str(out), FAULT="killed"
    )  # nothing is lacking
    assert (again.returncode, "counts: there already" in again.stderr) == (0, True)


def test_another_machines_run_is_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    save(Result(provenance={"processor": "abacus"}, settings={"device": "cpu"}), out)
    before = out.read_bytes()
    done = run_bench(tmp_path, "counts", "--resume", str(out), FAULT="none")
    (line,) = error_lines(done)
    assert done.returncode == 2
    assert "that run was on another machine: processor abacus, here " in line
    assert out.read_bytes() == before


def test_a_full_disk_sends_the_result_elsewhere_and_says_where(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "counts", more=FULL, FAULT="killed")
    assert done.returncode == 1
    (line,) = error_lines(done)
    assert "No space left on device" in line
    where = re.search(r"what was measured is in (\S+)", line)
    assert where
    load_partial(Path(where[1]))
    assert not load(tmp_path / "one.json").sections


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    """As rank 0 of a launch by torchrun, Slurm or by hand, whose port somebody has."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        done = run_bench(
            tmp_path, "counts", FAULT="none",
            RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
        )  # fmt: skip
    assert done.returncode == 1
    (line,) = error_lines(done)
    assert "can't meet" in line
    assert port in line
    assert "Traceback" not in done.stderr


def run_afresh(
    folder: Path, *words: str, launcher: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(BENCH)
    return run_program(
        [sys.executable, *launcher, str(script), *words, "--out", str(folder / "one.json")],
        cwd=ROOT,
        # Above the test's own folder, whose path may be too long for a socket.
        env=os.environ | {"TMPDIR": str(folder.parent), "PYTHONPATH": PATH} | environment,
    )


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")


@pytest.mark.ci
def test_under_torchrun_its_ranks_measure_and_rank_0_alone_speaks(tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    done = run_afresh(tmp_path, "counts", launcher=TORCHRUN, FAULT="none")
    assert done.returncode == 0, done.stderr
    section = load(out).sections["counts"]
    assert [metric.id for metric in section.metrics] == ["count.before", "count.after"]
    assert load(out).provenance["launcher"] == "torchrun, 2 ranks"
    assert done.stdout.count("count.after") == 1


@pytest.mark.ci
@pytest.mark.parametrize("launcher", [(), TORCHRUN], ids=["alone", "torchrun"])
def test_started_afresh_a_killed_rank_leaves_what_was_measured(
    tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    done = run_afresh(tmp_path, "counts", "--timeout", "20", launcher=launcher, FAULT="killed")
    assert done.returncode != 0
    assert len(error_lines(done)) == 1
    load_partial(tmp_path / "one.json")


@pytest.mark.ci
def test_a_folder_that_is_too_long_for_sockets_is_said_so(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    done = run_afresh(tmp_path, "counts", FAULT="none", TMPDIR=str(long))
    assert done.returncode == 1
    (line,) = error_lines(done)
    assert "set TMPDIR to a shorter one" in line


def test_a_section_that_wants_other_ranks_than_torchruns_is_misuse(tmp_path: Path) -> None:
    done = run_bench(
        tmp_path, "counts", FAULT="none",
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0",
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = error_lines(done)
    assert "wants 2 ranks on cpu; torchrun launched 1 on cpu" in line
