"""CI judges everything that it names: skipped modules, commands, missing Pythons."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import thinning
from tests.limits import LIMIT
from tests.running import run_program

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ROOT / ".ci/pythons"
FREE = "def test_nothing() -> None:\n    pass\n"
WRONG = ("ERROR ", "FAILED ")
SKIPS = {
    "skips_itself": 'pytest.skip("no oracle", allow_module_level=True)',
    "lacks_an_import": 'pytest.importorskip("no_such_oracle")',
    "one_case": '@pytest.mark.skip(reason="no oracle")',
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
def test_where_no_skip_is_expected_none_passes(tmp_path: Path, processes: tuple[str, ...]) -> None:
    room = tmp_path / "tests/room"
    room.mkdir(parents=True)
    for name, skip in SKIPS.items():
        (room / f"test_{name}.py").write_text(f"import pytest\n{skip}\n{FREE}", "utf-8")
    (room / "test_free.py").write_text(FREE, "utf-8")
    options = ("-rEf", "--continue-on-collection-errors", *processes)
    laptop = collect(tmp_path, *options)
    assert laptop.returncode == 0, laptop.stdout + laptop.stderr
    ci = collect(tmp_path, *options, SHARDBOOK_EXPECT_NO_SKIPS="1")
    assert ci.returncode == 1, ci.stdout + ci.stderr
    assert "skipped where no skip is expected" in ci.stdout
    refused = {line.split()[1] for line in ci.stdout.splitlines() if line.startswith(WRONG)}
    assert {Path(node.partition("::")[0]).stem for node in refused} == {f"test_{n}" for n in SKIPS}


TWO_AND_THREE = """
import pytest

@pytest.mark.parametrize("kind", ["ring", "tree"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_combinations(kind, size): pass

@pytest.mark.parametrize(("kind", "size"), [("ring", 2), ("ring", 3), ("tree", 2)])
def test_chosen_pairs(kind, size): pass
"""


class Thinner:
    """A plugin of a run of pytest that leaves combinations to CI, and keeps its tests."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        thinning.leave_combinations_to_ci(items)
        self.items = items


def test_a_laptop_runs_each_value_of_a_parameter_and_each_named_pair(tmp_path: Path) -> None:
    (tmp_path / "test_sizes.py").write_text(TWO_AND_THREE, "utf-8")
    thinner = Thinner()
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    pytest.main([*options, f"--rootdir={tmp_path}", str(tmp_path)], plugins=[thinner])
    laptop = [item for item in thinner.items if not item.get_closest_marker("ci")]
    assert len(thinner.items) == 9
    names = [item.nodeid.partition("::")[2].partition("[")[0] for item in laptop]
    assert names == ["test_combinations"] * 3 + ["test_chosen_pairs"] * 3
    values = [item.callspec.params for item in laptop[:3]]  # type: ignore[attr-defined]
    assert {value["kind"] for value in values} == {"ring", "tree"}
    assert {value["size"] for value in values} == {2, 3, 4}


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


@pytest.mark.parametrize("name", [".ci/pythons", ".ci/lowest", "Makefile"])
def test_each_path_of_a_test_that_a_program_names_is_here(name: str) -> None:
    named = re.findall(r"tests/[\w/{},.*-]+", (ROOT / name).read_text("utf-8"))
    listed = run_program(["bash", "-c", f"ls -d {' '.join(named)}"], cwd=ROOT)
    assert named and not listed.returncode, listed.stderr


def write_executable(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    """An environment with one other Python, which only says its version: to ask many is slow."""
    programs, work = tmp_path / "programs", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    write_executable(programs / "python3.12", '#!/bin/sh\necho "3.12.99 $0"\n')
    own = {"PYTHON": sys.executable, "PYENV_ROOT": str(work), "TMPDIR": str(work)}
    return {**os.environ, **own, "PATH": f"{programs}:{os.defpath}"}


@pytest.mark.parametrize("version", ["3.1", "3.12.9"])
def test_pythons_fails_where_a_named_one_is_not_here(here: dict[str, str], version: str) -> None:
    done = run_program([PYTHONS, version], env=here)
    assert done.returncode == 1
    assert f"nothing is tried: there is no Python {version} here" in done.stderr


@pytest.mark.parametrize(
    "ending",
    [
        signal.SIGTERM,
        *(pytest.param(number, marks=pytest.mark.ci) for number in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_a_cancelled_run_of_pythons_leaves_neither_its_folder_nor_a_process(
    tmp_path: Path, here: dict[str, str], ending: signal.Signals
) -> None:
    """`make` stands in: it starts a child that never stops to write into the environment."""
    programs, work, writing = tmp_path / "programs", tmp_path / "work", tmp_path / "writing"
    os.mkfifo(writing)
    child = 'while :; do mkdir -p "$VENV"; : >"$VENV/file"; done'
    write_executable(
        programs / "make",
        '#!/bin/bash\nfor word; do [[ $word == VENV=* ]] && export "$word"; done\n'
        f"bash -c '{child}' &\necho $! >'{writing}'\nwait\n",
    )
    run = subprocess.Popen(
        [PYTHONS, "3.12.99"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=here, start_new_session=True,
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
