"""What every Python file is held to: names that say what a thing is, and tests that hold no time.

Words that say nothing are counted, and no function has one as its name. A test that asserts a time,
or that gives up on a slow machine, fails under load. A learner's exercises are exempt from style.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

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


def bindings(nodes: Nodes) -> Iterator[str]:
    """Yield the name of each variable, parameter, function and class that is bound."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, Definition):
            yield node.name


def nameless(nodes: Nodes) -> list[str]:
    """Return the functions and classes whose name is one of the words, with their lines."""
    return [
        f"line {node.lineno}: {node.name}"
        for node in nodes
        if isinstance(node, Definition) and node.name.strip("_").lower() in WORDS
    ]


def path_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_few_names_say_nothing_and_no_function_has_such_a_name() -> None:
    faults = []
    gc.disable()  # a million nodes, none of them garbage: looking for it takes as long as parsing
    for room, most in ROOMS.items():
        names: list[str] = []
        for path in sorted(Path(ROOT, room).rglob("*.py")):
            if "results" not in path.parts:
                nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
                names += bindings(nodes)
                faults += [f"{path_of(path)}, {name}" for name in nameless(nodes)]
        percent = 100 * sum(name.strip("_") in WORDS for name in names) / len(names)
        if percent > most:
            faults.append(f"{room}: {percent:.2f} % of the names say nothing, {most} % may")
    gc.enable()
    assert not faults, "\n".join(faults)


def test_every_room_with_python_has_its_limit() -> None:
    rooms = {path.parent for path in ROOT.glob("*/*/*.py") if path.parts[-3] in ("tools", "tests")}
    assert {path_of(room) for room in rooms} <= {*ROOMS}


# A limit in seconds: `timeout=60`, `PATIENCE = 60`, `def f(timeout: float = 5)`, `wait(60)`.
SHORT = re.compile(
    r"\b(?:PATIENCE|timeout)(?:: \w+)? ?= ?([\d.]+)\b|\.(?:wait|join|poll)\(([\d.]+)\)"
)
TIMED = re.compile(r"^ *assert\b.*\btime\.(?:monotonic|perf_counter|process_time|time)\w*\(")
# What these wait for never comes: that the time runs out is what is tested.
RUNS_OUT = re.compile(r"\b(?:launch\.run|run_broken|World|Watchdog)\(")


def test_no_test_gives_up_early_or_asserts_a_time() -> None:
    faults = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if "benchmark" in path.parts or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            seconds = [float(a or b) for a, b in SHORT.findall(line)]
            if TIMED.search(line) or (min(seconds, default=LIMIT) < LIMIT
                                      and not RUNS_OUT.search(line)):  # fmt: skip
                faults.append(f"{path_of(path)}:{number}: {line.strip()}")
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
