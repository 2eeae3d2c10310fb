"""The page "an evening with shardlab": its path exists, and its numbers are what is there."""

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
from collections.abc import Callable, Iterator
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
CORE = ("comm", "grid", "layers", "data_parallel", "fsdp", "pipeline", "training")
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
        "gpt": "lines of code in `gpt`, which is built on the core",
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
        "gpt": "líneas de código de `gpt`, que se apoya en el núcleo",
    },
}
# The core had 3,600 lines until it completed a step in FSDP, compared the ranks' order of units in
# every forward, and named things in full words.
# The core has the check of calls since it moved from proofs to comm, 119 lines.
BARS = {"modules": 15, "lines": 1100, "deep": 9, "train": 40, "core": 4330}


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


def files_on_the_way(language: str) -> list[str]:
    """The files that the page names, in its order, relative to shardlab."""
    return re.findall(r"`(\w+/[\w/]*\w+\.py)`", evening(language).read_text("utf-8"))


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


def numbers() -> dict[str, int]:
    """All that the page prints."""
    linear, train, ran = list_loaded_files()
    core = [
        path
        for room in CORE
        for path in (SHARDLAB / room).rglob("*.py")
        if "checkpoint" not in path.parts
    ]
    return {
        "modules": len(linear),
        "lines": sum(map(lines_of_code, linear)),
        "frames": count_frames(a_linear),
        "deep": count_frames(a_step),
        "train": len(train),
        "ran": len(ran),
        "core": sum(map(lines_of_code, core)),
        "gpt": sum(map(lines_of_code, (SHARDLAB / "gpt").rglob("*.py"))),
    }


def evening(language: str) -> Path:
    ending = "" if language == "en" else f".{language}"
    return ROOT / "docs" / "reference" / f"evening{ending}.md"


def numbers_table(counts: dict[str, int], language: str) -> str:
    words = WORDS[language]
    core = ", ".join(f"`{room}`" for room in CORE)
    thousands = "," if language == "en" else "\N{NO-BREAK SPACE}"
    rows = [
        [str(words[name]).format(core), f"{number:,}".replace(",", thousands)]
        for name, number in counts.items()
    ]
    return table(list(words["head"]), "<>", rows)


def pages() -> None:
    """Write the pages' blocks."""
    counts = numbers()
    for language in LANGUAGES:
        write(evening(language), {"numbers": numbers_table(counts, language)})


def test_the_pages_print_what_is_there_and_a_layer_stays_within_an_evening() -> None:
    counts = numbers()
    assert {name: n for name, n in counts.items() if n > BARS.get(name, n)} == {}
    for language in LANGUAGES:
        assert shown(evening(language), "numbers") == numbers_table(counts, language)


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
