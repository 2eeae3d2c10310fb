"""The page "two evenings with shardlab": its order is complete and true, and it is short enough."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest

from pages.blocks import LANGUAGES
from pages.runs.evening import (
    CORE,
    LINES_AN_HOUR,
    SHARDLAB,
    core_files,
    count_frames,
    count_lines,
    list_parts,
    numbers,
    run_step,
)

# The core had 3,600 lines until it completed a step in FSDP, compared the ranks' order of units in
# every forward, and named things in full words. plain_1f1b.py added 46, and gpt/ has 319.
# The check of calls moved in from proofs/, 117, and the protocols of links and worlds are 50.
# Models by protocol and tuples between stages took 70, a modern block 120, Qwen3 66. An axis
# that refuses ranks, and orders compared beside a GPU, took 17.
BARS = {"modules": 15, "lines": 1100, "deep": 9, "train": 40, "core": 4905}
# The page once called its 33 files, 2,793 lines, an evening. Of four hours, that is:
EVENING = 4 * LINES_AN_HOUR


def files_on_the_way(language: str) -> list[str]:
    """Return the files of both evenings, in the page's order."""
    return [
        file
        for parts in list_parts(language).values()
        for files in parts.values()
        for file in files
    ]


def imports_in(nodes: Iterable[ast.AST], *, inside_functions: bool) -> Iterator[ast.ImportFrom]:
    """Return imports from shardlab, without those for type checking only."""
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef) and not inside_functions:
            continue
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("shardlab") for alias in node.names)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shardlab"):
            yield node
        yield from imports_in(ast.iter_child_nodes(node), inside_functions=inside_functions)


def find_file(module: str, name: str) -> str:
    """Return the file that has what `from module import name` imports, relative to shardlab."""
    folder = SHARDLAB.joinpath(*module.split(".")[1:])
    for path in (folder / f"{name}.py", folder.with_suffix(".py")):
        if path.is_file():
            return path.relative_to(SHARDLAB).as_posix()
    for node in ast.walk(ast.parse((folder / "__init__.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return find_file(node.module or "", name)
    return (folder / "__init__.py").relative_to(SHARDLAB).as_posix()


def imported_files(file: str, *, inside_functions: bool = False) -> set[str]:
    """Return what a file imports from shardlab, relative to shardlab."""
    tree = ast.parse((SHARDLAB / file).read_text("utf-8"))
    return {
        find_file(node.module or "", alias.name)
        for node in imports_in(tree.body, inside_functions=inside_functions)
        for alias in node.names
    }


def test_the_core_and_a_collective_s_depth_stay_within_an_evening() -> None:
    assert count_lines(core_files()) <= BARS["core"]
    assert count_frames(run_step) <= BARS["deep"]


@pytest.mark.ci
def test_a_layer_stays_within_an_evening() -> None:
    counts = numbers()
    assert {name: n for name, n in counts.items() if n > BARS.get(name, n)} == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_way_has_every_file_of_the_core_once_in_two_evenings(language: str) -> None:
    files = files_on_the_way(language)
    assert files == files_on_the_way("en")
    assert sorted(files) == sorted(core_files())
    for parts in list_parts(language).values():
        assert count_lines([file for files in parts.values() for file in files]) <= EVENING


def test_each_file_imports_only_files_above_it() -> None:
    above: set[str] = set()
    core, wrong, counted = set(core_files()), [], 0
    for file in files_on_the_way("en"):
        at_load = imported_files(file)
        # A wing (context/, experts/) may be imported inside a function; a core file may not.
        everywhere = imported_files(file, inside_functions=True)
        later = (at_load | (everywhere & core)) - above
        wrong += [f"{file} imports {name}" for name in sorted(later)]
        counted += len(at_load)
        above.add(file)
    assert wrong == []
    assert counted > 100


def test_the_files_that_the_way_leaves_out_only_pass_names_on() -> None:
    for folder in CORE:
        for path in (SHARDLAB / folder).rglob("__init__.py"):
            if "checkpoint" not in path.parts:
                nodes = ast.walk(ast.parse(path.read_text("utf-8")))
                defined = {n.name for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef)}
                assert defined <= {"__getattr__"}, path


def test_ops_opens_with_f_and_g() -> None:
    tree = ast.parse((SHARDLAB / "layers" / "ops.py").read_text("utf-8"))
    defined = [
        node for node in tree.body if not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom)
    ]
    assert [getattr(node, "name", "") for node in defined[:2]] == ["copy_to", "reduce_from"]
