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
from collections.abc import Callable
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
        "head": ["what", "now"],
        "modules": "modules of ours that `import shardlab.layers.linear` loads",
        "lines": "lines of code in them",
        "frames": "frames of ours from a linear's forward to `dist.all_reduce`",
        "deep": "frames of ours between `train.py` and any collective of a step, `--tp 2`",
        "train": "modules of ours that `import train` loads",
        "ran": "modules of ours that are loaded when a run without options ends",
        "core": "lines of code of the core, {}, without checkpoints",
        "gpt": "lines of code of the `gpt` that is made of it",
    },
    "es": {
        "head": ["qué", "ahora"],
        "modules": "módulos nuestros que carga `import shardlab.layers.linear`",
        "lines": "líneas de código en ellos",
        "frames": "marcos nuestros desde el forward de una capa lineal hasta `dist.all_reduce`",
        "deep": "marcos nuestros entre `train.py` y cualquier colectiva de un paso, `--tp 2`",
        "train": "módulos nuestros que carga `import train`",
        "ran": "módulos nuestros cargados cuando acaba una ejecución sin opciones",
        "core": "líneas de código del núcleo, {}, sin los checkpoints",
        "gpt": "líneas de código del `gpt` que se hace con él",
    },
}
# The core's was 3,600 until it refused ranks that run different units and completed a step in FSDP,
# and 4,100 until its names became longer, which wraps lines, and `comm` got `collective_errors`.
BARS = {"modules": 15, "lines": 1100, "deep": 9, "train": 40, "core": 4200}


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
    named = re.findall(r"`(\w+/[\w/]*\w+\.py)`", evening(language).read_text("utf-8"))
    assert len(named) > 20
    assert [name for name in named if not (SHARDLAB / name).is_file()] == []


def test_the_core_imports_no_link_and_no_proof() -> None:
    """A link is found by its name, and who watches is told; neither is needed to train."""
    wrong = []
    for room in (*CORE, "gpt"):
        for path in (SHARDLAB / room).rglob("*.py"):
            for line in path.read_text("utf-8").splitlines():
                if re.match(r"\s*(from|import) shardlab\.(links|proofs)", line):
                    wrong.append(f"{path.relative_to(SHARDLAB)}: {line.strip()}")
    assert wrong == []
