"""CI judges everything that it names: skipped modules, commands, missing Pythons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.limits import LIMIT
from tests.running import run_program

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ROOT / ".ci/pythons"
FREE = "def test_nothing() -> None:\n    pass\n"
SKIPS = {
    "a module that skips itself": 'pytest.skip("no oracle", allow_module_level=True)',
    "a module that lacks an import": 'pytest.importorskip("no_such_oracle")',
    "a test": '@pytest.mark.skip(reason="no oracle")',
}


def collect(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a folder with this project's own hooks."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("SHARDBOOK_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", os.devnull, f"--rootdir={folder}", *options, str(folder)]
    return run_program(command, cwd=ROOT, env={**variables, **environment})


@pytest.mark.parametrize(
    "processes",
    [pytest.param((), id="alone"), pytest.param(("-n", "1"), id="xdist", marks=pytest.mark.ci)],
)
@pytest.mark.parametrize("skip", SKIPS)
def test_where_no_skip_is_expected_none_passes(
    tmp_path: Path, skip: str, processes: tuple[str, ...]
) -> None:
    room = tmp_path / "tests/room"
    room.mkdir(parents=True)
    (room / "test_skipped.py").write_text(f"import pytest\n{SKIPS[skip]}\n{FREE}", "utf-8")
    (room / "test_free.py").write_text(FREE, "utf-8")
    laptop = collect(tmp_path, *processes)
    assert laptop.returncode == 0, laptop.stdout + laptop.stderr
    ci = collect(tmp_path, *processes, SHARDBOOK_EXPECT_NO_SKIPS="1")
    assert ci.returncode in (1, 2), ci.stdout + ci.stderr
    assert "skipped where no skip is expected" in ci.stdout


def test_every_command_in_python_is_read_by_ruff_and_mypy() -> None:
    files = ["git", "ls-files", "tools", "experiments", ".ci"]
    listed = run_program(files, cwd=ROOT, check=True).stdout.split()
    commands = set()
    for name in listed:
        path = ROOT / name
        if not path.suffix and path.is_file() and b"python" in path.read_bytes().split(b"\n", 1)[0]:
            commands.add(name)
    assert commands >= {"tools/bench", "tools/gpu-report"}
    ruff = [sys.executable, "-m", "ruff", "check", "--show-files"]
    shown = run_program(ruff, cwd=ROOT, check=True).stdout.splitlines()
    assert commands <= {Path(line).relative_to(ROOT).as_posix() for line in shown if line}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    assert commands <= {*settings["files"]}
    rooms = {path.parent.name for path in (ROOT / "tools").glob("*/__init__.py")}
    assert {f"tools/{room}" for room in rooms} <= {*settings["files"]}


@pytest.mark.parametrize("version", ["3.99", "3.1", "3.11.1111"])
def test_pythons_fails_where_a_python_that_is_named_is_not_here(version: str) -> None:
    done = run_program([PYTHONS, version])
    assert done.returncode == 1
    assert f"nothing is tried: there is no Python {version} here" in done.stderr


def write_executable(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_cancelled_run_of_pythons_leaves_neither_its_folder_nor_a_process(
    tmp_path: Path, ending: signal.Signals
) -> None:
    """`make` stands in: it starts a child that never stops to write into the environment."""
    programs, work, writing = tmp_path / "programs", tmp_path / "work", tmp_path / "writing"
    programs.mkdir()
    work.mkdir()
    os.mkfifo(writing)
    write_executable(programs / "python3.12", '#!/bin/sh\necho "3.12.99 $0"\n')
    child = 'while :; do mkdir -p "$VENV"; : >"$VENV/file"; done'
    write_executable(
        programs / "make",
        '#!/bin/bash\nfor word; do [[ $word == VENV=* ]] && export "$word"; done\n'
        f"bash -c '{child}' &\necho $! >'{writing}'\nwait\n",
    )
    run = subprocess.Popen(
        [PYTHONS, "3.12.99"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(work), "PATH": f"{programs}:{os.environ['PATH']}"},
        start_new_session=True,
        # bash can't trap a signal that was ignored when it started, as SIGHUP is below nohup.
        preexec_fn=lambda: signal.signal(ending, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    writer = int(writing.read_text("utf-8"))
    try:
        run.send_signal(ending)
        run.communicate(timeout=LIMIT)
        assert run.returncode == 128 + ending
        assert not is_running(writer)
        assert list(work.iterdir()) == []
    finally:
        if is_running(writer):
            os.kill(writer, signal.SIGKILL)


def is_running(process: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
