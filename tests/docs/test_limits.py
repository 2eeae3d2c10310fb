"""No test asserts a time, and none gives up on a slow machine: both fail under load."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import ROOT
from tests.limits import LIMIT

CLOCKS = {"monotonic", "perf_counter", "process_time", "time", "monotonic_ns", "perf_counter_ns"}
NAMES = {"LIMIT", "PATIENCE", "timeout"}
WAITS = {"wait", "join", "poll"}
# What these wait for never comes: that the time runs out is what is tested.
RUNS_OUT = {"launch.run", "run_broken", "World", "Watchdog"}
FILES = [
    path
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if "benchmark" not in path.parts and path != Path(__file__)
]


def list_calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def list_limits(call: ast.Call) -> Iterator[float]:
    """Yield the seconds that a call gives as literals: `timeout=60`, or `wait(60)`."""
    candidates = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
    if isinstance(call.func, ast.Attribute) and call.func.attr in WAITS:
        candidates += call.args[:1]
    for value in candidates:
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            yield value.value


def list_named_limits(tree: ast.AST) -> Iterator[tuple[int, float]]:
    """Yield line and seconds of named limits: `PATIENCE = 60`, `def f(timeout=60)`."""
    for node in ast.walk(tree):
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


def find_short_waits(source: str) -> list[str]:
    tree = ast.parse(source)
    waits = [
        f"line {line}: waits {seconds} s"
        for line, seconds in list_named_limits(tree)
        if seconds < LIMIT
    ]
    return waits + [
        f"line {call.lineno}: {ast.unparse(call.func)} waits {seconds} s"
        for call in list_calls(tree)
        for seconds in list_limits(call)
        if seconds < LIMIT and ast.unparse(call.func) not in RUNS_OUT
    ]


def find_timed_asserts(source: str) -> list[str]:
    """Return the assertions that read a clock."""
    return [
        f"line {node.lineno}: {ast.unparse(node.test)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assert)
        for call in list_calls(node)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in CLOCKS
        and ast.unparse(call.func.value) == "time"
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_test_gives_up_early_or_asserts_a_time(path: Path) -> None:
    source = path.read_text("utf-8")
    assert find_short_waits(source) == [], "take tests.limits.LIMIT"
    assert find_timed_asserts(source) == []


def test_what_gives_up_early_and_what_asserts_a_time_are_found() -> None:
    assert find_short_waits(
        "subprocess.run(x, timeout=60)\np.wait(5)\nq.join(LIMIT)\nlaunch.run(timeout=4)"
    ) == [
        "line 1: subprocess.run waits 60 s",
        "line 2: p.wait waits 5 s",
    ]
    assert find_short_waits("PATIENCE = 60\ndef f(timeout=5, *, x=1): ...\nLIMIT = 600") == [
        "line 1: waits 60 s", "line 2: waits 5 s"
    ]  # fmt: skip
    assert find_timed_asserts("assert time.monotonic() - began < 20\nassert pool.run(2)") == [
        "line 1: time.monotonic() - began < 20"
    ]


def test_a_whole_test_may_take_longer_than_any_of_its_steps() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert settings["tool"]["pytest"]["ini_options"]["timeout"] > LIMIT
