"""What every Python file is held to: names that say what a thing is, and tests that hold no time.

Words that say nothing are counted, and no function has one as its name. A test that asserts a time,
or that gives up on a slow machine, fails under load. A learner's exercises are exempt from style.
"""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.page import ROOT
from tests.limits import LIMIT

WORDS = {
    "one", "other", "said", "told", "asked", "kept", "held", "there", "came", "found", "made",
    "known", "left", "given", "taken", "mine", "own", "yours", "theirs", "others", "everybody",
    "somebody", "nobody", "most", "near", "anew", "ahead", "aside", "beside", "besides",
    "beyond", "beneath", "together", "apart", "along", "toward", "whose", "whoever", "saying",
}  # fmt: skip
# Per cent of all bindings that may have such a word as their name.
ROOMS = {
    **{f"tools/{room}": 0.5 for room in ("costlab", "notelab", "pages", "shardlab", "sitelab")},
    "experiments": 0.5,
    **{f"tests/{room}": 1.0 for room in ("costlab", "docs", "fresh", "notelab", "pages")},
    **{f"tests/{room}": 1.0 for room in ("shardlab", "site", "slurm")},
}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


Nodes = list[ast.AST]


def parse(text: str) -> Nodes:
    """Return all nodes of a file."""
    return [*ast.walk(ast.parse(text))]


def bindings(nodes: Nodes) -> Iterator[str]:
    """Yield the name of each variable, parameter, function and class that is bound."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, Definition):
            yield node.name


def share(names: Sequence[str]) -> float:
    """Return the percentage of names that say nothing."""
    return 100 * sum(name.strip("_") in WORDS for name in names) / len(names)


def nameless(nodes: Nodes) -> list[str]:
    """Return the functions and classes whose name is one of the words, with their lines."""
    return [
        f"line {node.lineno}: {node.name}"
        for node in nodes
        if isinstance(node, Definition) and node.name.strip("_").lower() in WORDS
    ]


class Examined(NamedTuple):
    """A file's bindings, its definitions without a name, and its limits of time."""

    names: list[str]
    nameless: list[str]
    limits: list[str]


@cache
def examine_room(room: str) -> dict[str, Examined]:
    """Return what the files of a room hold, by path."""
    paths = [path for path in Path(ROOT, room).rglob("*.py") if "results" not in path.parts]
    examined = {}
    gc.disable()  # a million nodes, none of them garbage: looking for it takes as long as parsing
    for path in sorted(paths):
        nodes = parse(path.read_text("utf-8"))
        limits = find_short_waits(nodes) + find_timed_asserts(nodes)
        examined[path_of(path)] = Examined([*bindings(nodes)], nameless(nodes), limits)
    gc.enable()
    return examined


def path_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_few_names_say_nothing_and_no_function_has_such_a_name() -> None:
    faults = []
    for room, most in ROOMS.items():
        files = examine_room(room)
        percent = share([name for file in files.values() for name in file.names])
        if percent > most:
            faults.append(f"{room}: {percent:.2f} % of the names say nothing, {most} % may")
        faults += [f"{path}, {name}" for path, file in files.items() for name in file.nameless]
    assert not faults, "\n".join(faults)


def test_every_room_with_python_has_its_limit() -> None:
    rooms = {path.parent for path in ROOT.glob("*/*/*.py") if path.parts[-3] in ("tools", "tests")}
    assert {path_of(room) for room in rooms} <= {*ROOMS}


CLOCKS = {"monotonic", "perf_counter", "process_time", "time", "monotonic_ns", "perf_counter_ns"}
NAMES = {"LIMIT", "PATIENCE", "timeout"}
WAITS = {"wait", "join", "poll"}
# What these wait for never comes: that the time runs out is what is tested.
RUNS_OUT = {"launch.run", "run_broken", "World", "Watchdog"}


def list_limits(call: ast.Call) -> Iterator[float]:
    """Yield the seconds that a call gives as literals: `timeout=60`, or `wait(60)`."""
    candidates = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
    if isinstance(call.func, ast.Attribute) and call.func.attr in WAITS:
        candidates += call.args[:1]
    for value in candidates:
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            yield value.value


def list_named_limits(nodes: Nodes) -> Iterator[tuple[int, float]]:
    """Yield line and seconds of named limits: `PATIENCE = 60`, `def f(timeout=60)`."""
    for node in nodes:
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            pairs = [(node.targets[0].id, node.value)]
        elif isinstance(node, ast.arguments):
            plain = node.args[len(node.args) - len(node.defaults) :]
            pairs = [(arg.arg, value) for arg, value in zip(plain, node.defaults, strict=True)]
            pairs += [(a.arg, v) for a, v in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        for name, value in pairs:
            seconds = value.value if isinstance(value, ast.Constant) else None
            if name in NAMES and isinstance(seconds, int | float):
                assert value
                yield value.lineno, seconds


def find_short_waits(nodes: Nodes) -> list[str]:
    waits = [
        f"line {line}: waits {seconds} s, not tests.limits.LIMIT"
        for line, seconds in list_named_limits(nodes)
        if seconds < LIMIT
    ]
    return waits + [
        f"line {call.lineno}: {ast.unparse(call.func)} waits {seconds} s, not tests.limits.LIMIT"
        for call in nodes
        if isinstance(call, ast.Call)
        for seconds in list_limits(call)
        if seconds < LIMIT and ast.unparse(call.func) not in RUNS_OUT
    ]


def find_timed_asserts(nodes: Nodes) -> list[str]:
    """Return the assertions that read a clock."""
    return [
        f"line {node.lineno}: {ast.unparse(node.test)}"
        for node in nodes
        if isinstance(node, ast.Assert)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in CLOCKS
        and ast.unparse(call.func.value) == "time"
    ]


def test_no_test_gives_up_early_or_asserts_a_time() -> None:
    files = {
        path: file
        for room in ROOMS
        if room.startswith("tests/")
        for path, file in examine_room(room).items()
        if "/benchmark/" not in path and path != path_of(Path(__file__))
    }
    assert len(files) > 200
    faults = [f"{path}, {fault}" for path, file in files.items() for fault in file.limits]
    assert not faults, "\n".join(faults)


def test_a_whole_test_may_take_longer_than_any_of_its_steps() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert settings["tool"]["pytest"]["ini_options"]["timeout"] > LIMIT


UNUSED = "import os,sys\nx = lambda a : a\n"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("experiments/35-write-it/linears.py", 0),
        ("experiments/35-write-it/replicas.py", 0),
        ("experiments/35-write-it/unit.py", 0),
        ("experiments/37-batches/mine.py", 0),
        ("experiments/38-long-sequences/faulty.py", 0),
        ("experiments/35-write-it/grade.py", 1),
    ],
)
def test_only_exercises_are_exempt_from_style(path: str, status: int) -> None:
    assert (ROOT / path).is_file()
    ruff = [sys.executable, "-m", "ruff", "check", "--force-exclude", "--stdin-filename", path, "-"]
    done = subprocess.run(ruff, input=UNUSED, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == status, done.stdout
