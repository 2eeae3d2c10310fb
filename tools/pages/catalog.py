"""The names of the pages, and what can be done with each: list, render, compare, write.

A page's module has `render()`, which yields each of its files with its new text. Two more names
are optional: `record(…)` measures again what the page is made from, and `normalize(text)` removes
from a text what may differ from run to run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

MODULES = {
    "tree": "pages.tree",
    "api": "pages.api",
    "evening": "pages.runs.evening",
    "lab-00": "pages.runs.lab_00",
    "lab-00b": "pages.runs.lab_00b",
    "lab-01": "pages.runs.lab_01",
    "lab-04": "pages.runs.lab_04",
    "lab-05": "pages.runs.lab_05",
    "lab-06": "pages.runs.lab_06",
    "theory-06": "pages.runs.theory_06",
    "theory-07": "pages.runs.theory_07",
    "bench-fit": "pages.runs.bench_fit",
    "promise": "pages.faults.promise",
    "check-picture": "pages.faults.check_picture",
    "diagrams": "pages.diagrams",
    "museum": "pages.museum",
    "since": "pages.since",
    "trace": "pages.runs.trace",
    "gpu-run": "pages.gpu_run",
    "predictions": "pages.runs.predictions",
    "layouts-here": "pages.runs.layouts_here",
    "corpora": "pages.runs.corpora",
}


def load(name: str) -> ModuleType:
    """Import the module of a name."""
    return import_module(MODULES[name])


def list_names() -> str:
    """Return a line for each name: the first line of its module's docstring."""
    width = max(map(len, MODULES))
    return "\n".join(f"{name:<{width}}  {_summarize(module)}" for name, module in MODULES.items())


def _summarize(module: str) -> str:
    path = Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return docstring.partition("\n")[0]


def list_stale(name: str) -> list[Path]:
    """Return the files of a name whose text is another than the one that is rendered."""
    normalize = getattr(load(name), "normalize", str)
    return [
        path
        for path, text in _render(name)
        if not path.is_file() or normalize(path.read_text("utf-8")) != normalize(text)
    ]


def write(name: str) -> list[Path]:
    """Write the files of a name; return their paths."""
    paths = []
    for path, text in _render(name):
        path.write_text(text, "utf-8")
        paths.append(path)
    return paths


def _render(name: str) -> Iterator[tuple[Path, str]]:
    yield from load(name).render()
