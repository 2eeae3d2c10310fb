"""The page "an evening with shardlab": its path exists, and is short enough."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pages.blocks import LANGUAGES, in_language
from pages.runs.evening import CORE, PAGE, SHARDLAB, numbers

# The core had 3,600 lines until it completed a step in FSDP, compared the ranks' order of units in
# every forward, and named things in full words.
BARS = {"modules": 15, "lines": 1100, "deep": 9, "train": 40, "core": 4200}


def files_on_the_way(language: str) -> list[str]:
    """The files that the page names, in its order, relative to shardlab."""
    return re.findall(r"`(\w+/[\w/]*\w+\.py)`", in_language(PAGE, language).read_text("utf-8"))


def imported_files(path: Path) -> Iterator[str]:
    """What a file imports from shardlab when it is loaded, relative to shardlab."""
    nodes: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while nodes:
        node = nodes.pop()
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not typing_only and not isinstance(node, ast.FunctionDef):
            nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shardlab."):
            module = (node.module or "").removeprefix("shardlab.").replace(".", "/")
            yield f"{module}.py"
            yield from (f"{module}/{alias.name}.py" for alias in node.names)


def test_a_layer_stays_within_an_evening() -> None:
    counts = numbers()
    assert {name: n for name, n in counts.items() if n > BARS.get(name, n)} == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_file_on_the_way_exists(language: str) -> None:
    files = files_on_the_way(language)
    assert len(files) > 20
    assert [file for file in files if not (SHARDLAB / file).is_file()] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_file_on_the_way_imports_one_that_comes_later(language: str) -> None:
    files = files_on_the_way(language)
    place = {file: number for number, file in enumerate(files)}
    assert len(place) == len(files)
    imports = [(file, name) for file in files for name in imported_files(SHARDLAB / file)]
    assert len([name for _, name in imports if name in place]) > 20
    assert [pair for pair in imports if place.get(pair[1], -1) > place[pair[0]]] == []


def test_the_core_imports_no_link_and_no_proof() -> None:
    """A link is found by its name, and who watches is told; neither is needed to train."""
    wrong = []
    for room in (*CORE, "gpt"):
        for path in (SHARDLAB / room).rglob("*.py"):
            for line in path.read_text("utf-8").splitlines():
                if re.match(r"\s*(from|import) shardlab\.(links|proofs)", line):
                    wrong.append(f"{path.relative_to(SHARDLAB)}: {line.strip()}")
    assert wrong == []
