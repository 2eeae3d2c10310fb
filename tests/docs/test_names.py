"""Names say what a thing is: words that say nothing are counted, and no function has one."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.docs.page import ROOT

WORDS = frozenset(
    [
        "one",
        "other",
        "said",
        "told",
        "asked",
        "kept",
        "held",
        "there",
        "came",
        "found",
        "made",
        "known",
        "left",
        "given",
        "taken",
        "mine",
        "own",
        "yours",
        "theirs",
        "others",
        "everybody",
        "somebody",
        "nobody",
        "most",
        "near",
        "anew",
        "ahead",
        "aside",
        "beside",
        "besides",
        "beyond",
        "beneath",
        "together",
        "apart",
        "along",
        "toward",
        "whose",
        "whoever",
        "saying",
    ]
)
# Per cent of all bindings, and how many functions and classes may have such a word as their name.
ROOMS = {
    "tools/costlab": (0.5, 0),
    "tools/notelab": (0.5, 0),
    "tools/pages": (0.5, 0),
    "tools/shardlab": (0.5, 0),
    "tools/sitelab": (0.5, 0),
    "experiments": (0.5, 0),
    "tests/costlab": (1.0, 0),
    "tests/docs": (1.0, 0),
    "tests/fresh": (1.0, 0),
    "tests/notelab": (1.0, 0),
    "tests/pages": (1.0, 0),
    "tests/shardlab": (1.0, 0),
    "tests/site": (1.0, 0),
    "tests/slurm": (1.0, 0),
}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def bindings(source: str) -> Iterator[str]:
    """Yield the name of each variable, parameter, function and class that is bound."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, Definition):
            yield node.name


def share(sources: Iterable[str]) -> float:
    """Return the percentage of bindings whose name says nothing."""
    names = [name.strip("_") for source in sources for name in bindings(source)]
    return 100 * sum(name in WORDS for name in names) / len(names)


def nameless(source: str) -> list[str]:
    """Return the functions and classes whose name is one of the words, with their lines."""
    return [
        f"line {node.lineno}: {node.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, Definition) and node.name.strip("_").lower() in WORDS
    ]


def python_files(room: str) -> dict[str, str]:
    """Return the sources of a room, by path."""
    paths = [path for path in Path(ROOT, room).rglob("*.py") if "results" not in path.parts]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


@pytest.mark.parametrize("room", ROOMS)
def test_few_names_say_nothing_and_no_function_has_such_a_name(room: str) -> None:
    sources = python_files(room)
    most, functions = ROOMS[room]
    assert share(sources.values()) <= most
    names = [f"{path}, {name}" for path, text in sources.items() for name in nameless(text)]
    assert len(names) <= functions, names


def test_every_room_with_python_has_its_limit() -> None:
    rooms = {path.parent for path in ROOT.glob("*/*/*.py") if path.parts[-3] in ("tools", "tests")}
    assert {room.relative_to(ROOT).as_posix() for room in rooms} <= {*ROOMS}


def test_a_name_that_says_nothing_is_counted_wherever_it_is_bound() -> None:
    source = "def told(found, x):\n    for one in x: pass\n    return [_other for _other in x]\n"
    assert share([source]) == pytest.approx(80.0)


def test_a_function_or_class_with_such_a_name_is_named_with_its_line() -> None:
    source = "class Held:\n    async def _kept(self): ...\n    def keep(self): ...\n"
    assert nameless(source) == ["line 1: Held", "line 2: _kept"]
