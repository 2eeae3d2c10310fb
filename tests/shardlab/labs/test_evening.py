"""The page "two evenings with shardlab": its order is complete and true, and so are its numbers."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

from shardlab.comm import World, torch_link
from shardlab.layers.linear import RowParallelLinear
from tests.shardlab.fake_world import alone
from tests.shardlab.labs.lab_pages import LANGUAGES, ROOT, TRAIN, script, shown, table, write

SHARDLAB = ROOT / "tools" / "shardlab"
SETTINGS = TRAIN.with_name("settings.py")
CORE = ("comm", "grid", "layers", "gpt", "data_parallel", "fsdp", "pipeline", "training")
WORDS = {
    "en": {
        "head": ["quantity", "value"],
        "modules": "shardlab modules that `import shardlab.layers.linear` loads",
        "lines": "lines of code in these modules",
        "frames": "shardlab's stack frames from a linear's forward to `dist.all_reduce`",
        "deep": "shardlab's stack frames between `train.py --tp 2` and any collective of a step",
        "train": "shardlab modules that `import train` loads",
        "ran": "shardlab modules that are loaded at the end of a run without options",
        "core": "lines of code in the core ({}), without checkpoints",
        "evenings": ["part", "files", "lines of code", "hours"],
    },
    "es": {
        "head": ["magnitud", "valor"],
        "modules": "módulos de shardlab que carga `import shardlab.layers.linear`",
        "lines": "líneas de código en estos módulos",
        "frames": "marcos de pila de shardlab entre el forward de una lineal y `dist.all_reduce`",
        "deep": "marcos de pila de shardlab entre `train.py --tp 2` y toda colectiva de un paso",
        "train": "módulos de shardlab que carga `import train`",
        "ran": "módulos de shardlab cargados al final de una ejecución sin opciones",
        "core": "líneas de código del núcleo ({}), sin los checkpoints",
        "evenings": ["parte", "archivos", "líneas de código", "horas"],
    },
}
# The core had 3,600 lines until it completed a step in FSDP, compared the ranks' order of units in
# every forward, and named things in full words. plain_1f1b.py added 46, and gpt/ has 319.
# The check of calls moved in from proofs/, 117, and the protocols of links and worlds are 50.
BARS = {"modules": 15, "lines": 1100, "deep": 9, "train": 40, "core": 4700}
# The page once called its 33 files, 2,793 lines, an evening. Of four hours, that is:
LINES_AN_HOUR = 700
EVENING = 4 * LINES_AN_HOUR
LINK = re.compile(r"\]\(\.\./\.\./tools/shardlab/([\w/]+\.py)\)")


def lines_of_code(path: Path) -> int:
    """Lines that hold code: no docstring, no comment, no blank line."""
    source = path.read_text("utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None and first is not None:
                documented |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    without = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    }  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in without:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


STEPS = """
import sys

def say():
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items()
             if name.split(".")[0] == "shardlab"]
    print("loaded", *filter(None, files), sep="\\t")

import shardlab.layers.linear
say()
sys.path.insert(0, "experiments/35-three-d")
import train
say()
from tests.shardlab.fake_world import alone
with alone(0, 1) as world:
    train.train(train.Settings(steps=1, layers=1, hidden=8, heads=2, every=9), world)
say()
"""


def list_loaded_files() -> list[list[Path]]:
    """The files of ours that are loaded by a linear, by `train`, and by a run."""
    command = [sys.executable, "-c", STEPS]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr
    lists = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("loaded")]
    return [[Path(file) for file in files] for files in lists]


def count_frames(call: Callable[[World], object]) -> int:
    """The most frames of ours on the way to any of torch's collectives that a rank of two calls."""
    depths: list[int] = []

    def counting(collective: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **settings: object) -> object:
            stack = traceback.extract_stack()
            depths.append(sum(Path(frame.filename).is_relative_to(SHARDLAB) for frame in stack))
            return collective(*args, **settings)

        return counted

    with contextlib.ExitStack() as stack:
        world = stack.enter_context(alone(0, 2))
        for of, name in (
            (dist, "all_reduce"),
            (torch_link, "ALL_GATHER"),
            (torch_link, "REDUCE_SCATTER"),
        ):
            stack.enter_context(patch.object(of, name, counting(getattr(of, name))))
        call(world)
    return max(depths)


def a_linear(world: World) -> None:
    RowParallelLinear(4, 4, axis=world.whole)(torch.zeros(1, 1, 2))


def a_step(world: World) -> None:
    trainer = script(TRAIN).Trainer(script(SETTINGS).Settings(tp=2), world)
    trainer.step(0)


def list_parts(language: str) -> dict[str, dict[str, list[str]]]:
    """Return the files that the page links, relative to shardlab, by evening and by part."""
    parts: dict[str, dict[str, list[str]]] = {}
    for evening_text in evening(language).read_text("utf-8").split("\n## ")[1:]:
        title, *sections = evening_text.split("\n### ")
        if sections:
            parts[title.partition("\n")[0]] = {
                section.partition("\n")[0]: LINK.findall(section) for section in sections
            }
    return parts


def files_on_the_way(language: str) -> list[str]:
    """Return the files of both evenings, in the page's order."""
    return [
        file
        for parts in list_parts(language).values()
        for files in parts.values()
        for file in files
    ]


def core_files() -> list[str]:
    """Return the files of the core, relative to shardlab, without what only passes names on."""
    return [
        path.relative_to(SHARDLAB).as_posix()
        for folder in CORE
        for path in sorted((SHARDLAB / folder).rglob("*.py"))
        if "checkpoint" not in path.parts and path.name != "__init__.py"
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


def numbers() -> dict[str, int]:
    """All that the page prints."""
    linear, train, ran = list_loaded_files()
    return {
        "modules": len(linear),
        "lines": sum(map(lines_of_code, linear)),
        "frames": count_frames(a_linear),
        "deep": count_frames(a_step),
        "train": len(train),
        "ran": len(ran),
        "core": count_lines(core_files()),
    }


def count_lines(files: list[str]) -> int:
    """Return the number of lines of code of files, given relative to shardlab."""
    return sum(lines_of_code(SHARDLAB / file) for file in files)


def evening(language: str) -> Path:
    ending = "" if language == "en" else f".{language}"
    return ROOT / "docs" / "reference" / f"evening{ending}.md"


def format_count(number: int, language: str) -> str:
    return f"{number:,}".replace(",", "," if language == "en" else "\N{NO-BREAK SPACE}")


def numbers_table(counts: dict[str, int], language: str) -> str:
    words = WORDS[language]
    core = ", ".join(f"`{room}`" for room in CORE)
    rows = [
        [str(words[name]).format(core), format_count(number, language)]
        for name, number in counts.items()
    ]
    return table(list(words["head"]), "<>", rows)


def evenings_table(language: str) -> str:
    """Count the files and lines of each part, and the hours of each evening."""
    rows = []
    for title, parts in list_parts(language).items():
        for part, files in parts.items():
            rows.append([part, str(len(files)), format_count(count_lines(files), language), ""])
        files = [file for files in parts.values() for file in files]
        lines = count_lines(files)
        total = [title, str(len(files)), format_count(lines, language)]
        rows.append([f"**{cell}**" for cell in [*total, f"{lines / LINES_AN_HOUR:.1f}"]])
    return table(list(WORDS[language]["evenings"]), "<>>>", rows)


def pages() -> None:
    """Write the pages' blocks."""
    counts = numbers()
    for language in LANGUAGES:
        blocks = {
            "numbers": numbers_table(counts, language),
            "evenings": evenings_table(language),
        }
        write(evening(language), blocks)


def test_the_pages_print_what_is_there_and_a_layer_stays_within_an_evening() -> None:
    counts = numbers()
    assert {name: n for name, n in counts.items() if n > BARS.get(name, n)} == {}
    for language in LANGUAGES:
        assert shown(evening(language), "numbers") == numbers_table(counts, language)
        assert shown(evening(language), "evenings") == evenings_table(language)


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
