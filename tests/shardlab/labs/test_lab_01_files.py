"""Lab 01's program is few files, which import each other in one direction only."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from pages.programs import TRAIN


def imported_names(path: Path) -> set[str]:
    """Return the modules that a file imports: also inside functions and for type checking only."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_the_program_is_six_files_at_most_without_a_circle_of_imports() -> None:
    files = {path.stem: path for path in TRAIN.parent.glob("*.py")}
    assert len(files) <= 6
    imports = {stem: imported_names(path) & set(files) for stem, path in files.items()}
    assert imports["train"] >= {"settings", "stage", "text"}
    assert [*TopologicalSorter(imports).static_order()][-1] == "traced"  # a circle would raise
