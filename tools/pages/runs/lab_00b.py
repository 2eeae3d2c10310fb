"""Lab 00b: what the grader says of empty files, and of three mistakes."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from pages.blocks import (
    LANGUAGES,
    ROOT,
    PageError,
    fence,
    fill_blocks,
    lab_page,
    python_blocks,
    solution_page,
)
from pages.programs import script

LAB = "00b-write-it"
FILES = ROOT / "experiments" / "35-write-it"
PARTS = ("linears", "replicas", "unit")


class Mistake(NamedTuple):
    """In the solution of a part, what is written instead, and the message of the grader."""

    part: str
    right: str
    wrong: str
    message: str


BIAS_TWICE = Mistake(
    "linears",
    "G.apply(linear(x_Nf, w_Df)) + b_D",
    "G.apply(linear(x_Nf, w_Df, b_D))",
    "row's output: off by up to * Every rank added the bias: add it once, after the sum",
)
ALONE = Mistake(
    "linears",
    "    dist.all_reduce(total)\n",
    "    if dist.get_rank() == 0:\n        dist.all_reduce(total)\n",
    "on rank 1, F.backward: off by up to * It is the input, unchanged: nothing was all-reduced",
)
WHOLE_AFTER_FORWARD = Mistake(
    "unit",
    "        with saved_tensors_hooks(place, find):\n            return",
    "        if True:\n            return",
    "step 0: after forward 624 B more are in memory than with an unsharded module",
)


def grader() -> ModuleType:
    """Return the lab's grader."""
    return script(FILES / "grade.py")


def read_solution(part: str, language: str = "en") -> str:
    """Return a part's code in the solution."""
    return python_blocks(solution_page(LAB, language))[PARTS.index(part)]


def grade_code(part: str, code: str, folder: Path) -> str:
    """Return what the grader says of a part's code, written into `folder`."""
    (folder / f"{part}.py").write_text(code, "utf-8")
    return str(grader().grade(part, folder))


def grade_mistake(mistake: Mistake, folder: Path) -> str:
    """Return what the grader says of the solution with a mistake."""
    code = read_solution(mistake.part)
    if mistake.right not in code:
        raise PageError(f"the solution of {mistake.part} no longer has:\n{mistake.right}")
    return grade_code(mistake.part, code.replace(mistake.right, mistake.wrong), folder)


def blocks(folder: Path) -> dict[str, str]:
    """What the page shows: the grader of empty files, and of three mistakes."""
    empty = [f"{part}: {grader().grade(part)}" for part in PARTS]
    faults = [BIAS_TWICE, ALONE, WHOLE_AFTER_FORWARD]
    verdicts = [f"{mistake.part}: {grade_mistake(mistake, folder)}" for mistake in faults]
    texts = {"empty": "\n".join(map(_wrap, empty)), "faults": "\n\n".join(map(_wrap, verdicts))}
    return {name: fence(text) for name, text in texts.items()}


def _wrap(text: str) -> str:
    return textwrap.fill(text, 78, subsequent_indent="  ", break_on_hyphens=False)


def render() -> Iterator[tuple[Path, str]]:
    """Yield the lab's page in each language."""
    with tempfile.TemporaryDirectory() as folder:
        texts = blocks(Path(folder))
    for language in LANGUAGES:
        page = lab_page(LAB, language)
        yield page, fill_blocks(page, texts)
