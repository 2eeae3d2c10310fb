"""What shardlab imports: no circle, no module by a computed name, no wing from the core."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
CORE = ("comm", "grid", "layers", "gpt", "data_parallel", "fsdp", "pipeline", "training")
WINGS = ("links", "proofs")


def name_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(text: str, modules: set[str]) -> Iterator[str]:
    """Every import, inside functions and for type checkers too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules else node.module


def find_circles(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules that import themselves by way of others."""
    reached = {module: set(targets) for module, targets in imports.items()}
    for through in imports:
        for targets in reached.values():
            if through in targets:
                targets.update(reached[through])
    return [module for module, targets in reached.items() if module in targets]


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    paths = {name_of(path, TOOLS): path for path in (TOOLS / "shardlab").rglob("*.py")}
    modules = set(paths)
    return {
        name: set(imports_of(path.read_text("utf-8"), modules)) - {name}
        for name, path in paths.items()
    }


def test_no_module_imports_itself_by_way_of_others(imports: dict[str, set[str]]) -> None:
    assert len(imports) > 100
    assert find_circles(imports) == []


def test_only_the_worlds_connect_imports_a_link_and_nothing_in_the_core_a_proof(
    imports: dict[str, set[str]],
) -> None:
    arrows = [
        (module, target)
        for module, targets in sorted(imports.items())
        for target in sorted(targets)
        if module.split(".")[1:2] and module.split(".")[1] in CORE
        if target.split(".")[1:2] and target.split(".")[1] in WINGS
    ]
    assert arrows == [("shardlab.comm.world", "shardlab.links")]


@pytest.mark.parametrize("room", ["comm", "links"])
def test_communication_imports_nothing_that_stands_on_it(
    imports: dict[str, set[str]], room: str
) -> None:
    rooms = {
        target.split(".")[1]
        for module, targets in imports.items()
        if module.startswith(f"shardlab.{room}")
        for target in targets
    }
    assert rooms <= {"comm", "links"}


def test_no_module_of_ours_is_imported_by_a_computed_name() -> None:
    computed = [
        path.relative_to(TOOLS).as_posix()
        for path in sorted((TOOLS / "shardlab").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        and not (node.args and isinstance(node.args[0], ast.Constant))
    ]
    assert computed == []
