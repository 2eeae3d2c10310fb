"""Two evenings with shardlab: how much code there is, and how deep a collective is called."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist

from pages.blocks import LANGUAGES, ROOT, PageError, fill_blocks, in_language, read_words, table
from pages.house import count_code_lines
from pages.programs import TRAIN, script
from pages.ranks import alone
from shardlab.comm import World, torch_link
from shardlab.layers.linear import RowParallelLinear

PAGE = "docs/reference/evening"
SHARDLAB = ROOT / "tools" / "shardlab"
SETTINGS = TRAIN.with_name("settings.py")
CORE = ("comm", "grid", "layers", "gpt", "data_parallel", "fsdp", "pipeline", "training")
LINES_AN_HOUR = 700
LINK = re.compile(r"\]\(\.\./\.\./tools/shardlab/([\w/]+\.py)\)")
WORDS = read_words("evening")

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
from pages.ranks import alone
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
    if done.returncode:
        raise PageError(f"importing shardlab failed:\n{done.stderr}")
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


def run_linear(world: World) -> None:
    """Run a row-parallel linear layer forward."""
    RowParallelLinear(4, 4, axis=world.whole)(torch.zeros(1, 1, 2))


def run_step(world: World) -> None:
    """Run a training step of lab 01."""
    trainer = script(TRAIN).Trainer(script(SETTINGS).Settings(tp=2), world)
    trainer.step(0)


def list_parts(language: str) -> dict[str, dict[str, list[str]]]:
    """Return the files that the page links, relative to shardlab, by evening and by part."""
    parts: dict[str, dict[str, list[str]]] = {}
    for evening_text in in_language(PAGE, language).read_text("utf-8").split("\n## ")[1:]:
        title, *sections = evening_text.split("\n### ")
        if sections:
            parts[title.partition("\n")[0]] = {
                section.partition("\n")[0]: LINK.findall(section) for section in sections
            }
    return parts


def core_files() -> list[str]:
    """Return the files of the core, relative to shardlab, without what only passes names on."""
    return [
        path.relative_to(SHARDLAB).as_posix()
        for folder in CORE
        for path in sorted((SHARDLAB / folder).rglob("*.py"))
        if "checkpoint" not in path.parts and path.name != "__init__.py"
    ]


@cache
def numbers() -> dict[str, int]:
    """All that the page prints."""
    linear, train, ran = list_loaded_files()
    return {
        "modules": len(linear),
        "lines": sum(map(count_code_lines, linear)),
        "frames": count_frames(run_linear),
        "deep": count_frames(run_step),
        "train": len(train),
        "ran": len(ran),
        "core": count_lines(core_files()),
    }


def count_lines(files: list[str]) -> int:
    """Return the number of lines of code of files, given relative to shardlab."""
    return sum(count_code_lines(SHARDLAB / file) for file in files)


def format_count(number: int, language: str) -> str:
    """Return a number as the language writes it."""
    return f"{number:,}".replace(",", "," if language == "en" else "\N{NO-BREAK SPACE}")


def numbers_table(counts: dict[str, int], language: str) -> str:
    """Return the table of the numbers."""
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


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    counts = numbers()
    for language in LANGUAGES:
        page = in_language(PAGE, language)
        yield (
            page,
            fill_blocks(
                page,
                {"numbers": numbers_table(counts, language), "evenings": evenings_table(language)},
            ),
        )
