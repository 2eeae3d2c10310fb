"""Lab 00b: what the grader says of empty files, of three mistakes, and of the solution."""

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
    """In the solution of a part: what is replaced, and by what."""

    part: str
    right: str
    wrong: str


BIAS_TWICE = Mistake(
    "linears", "G.apply(linear(x_Nf, w_Df)) + b_D", "G.apply(linear(x_Nf, w_Df, b_D))"
)
ALONE = Mistake(
    "linears",
    "    dist.all_reduce(total)\n",
    "    if dist.get_rank() == 0:\n        dist.all_reduce(total)\n",
)
WHOLE_AFTER_FORWARD = Mistake(
    "unit",
    "        with saved_tensors_hooks(place, find):\n            return",
    "        if True:\n            return",
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
    return str(grader().grade(part, folder)[0])


def grade_mistake(mistake: Mistake, folder: Path) -> str:
    """Return what the grader says of the solution with a mistake."""
    code = read_solution(mistake.part)
    if mistake.right not in code:
        raise PageError(f"the solution of {mistake.part} no longer has:\n{mistake.right}")
    return grade_code(mistake.part, code.replace(mistake.right, mistake.wrong), folder)


def blocks(folder: Path) -> dict[str, str]:
    """What the pages show: the grader of empty files, of three mistakes, and of the solution."""
    empty = [f"{part}: {grader().grade(part)[0]}" for part in PARTS]
    faults = [BIAS_TWICE, ALONE, WHOLE_AFTER_FORWARD]
    verdicts = [f"{mistake.part}: {grade_mistake(mistake, folder)}" for mistake in faults]
    right = []
    for part in PARTS:
        (folder / f"{part}.py").write_text(_predicted(part) + read_solution(part), "utf-8")
        verdict, lines = grader().grade(part, folder)
        right += [f"{part}: {verdict}", *(f"  {line}" for line in lines)]
    texts = {
        "empty": "\n".join(map(_wrap, empty)),
        "faults": "\n\n".join(map(_wrap, verdicts)),
        "right": "\n".join(textwrap.fill(line, 78, subsequent_indent="    ") for line in right),
    }
    return {name: fence(text) for name, text in texts.items()}


def _predicted(part: str) -> str:
    """Return a part's predictions, of which one is wrong."""
    return {"linears": 'PREDICTED = {"F": (0, 96), "G": (96, 96)}\n'}.get(part, "")


def _wrap(text: str) -> str:
    return textwrap.fill(text, 78, subsequent_indent="  ", break_on_hyphens=False)


def render() -> Iterator[tuple[Path, str]]:
    """Yield the lab's page and its answers in each language."""
    with tempfile.TemporaryDirectory() as folder:
        texts = blocks(Path(folder))
    for language in LANGUAGES:
        page, answers = lab_page(LAB, language), solution_page(LAB, language)
        yield page, fill_blocks(page, {name: texts[name] for name in ("empty", "faults")})
        yield answers, fill_blocks(answers, {"right": texts["right"]})
