"""Lab 06: what its program counts, and what its grader says of the two faults and the solution."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages.blocks import LANGUAGES, ROOT, fence, fill_blocks, lab_page, python_blocks, solution_page
from pages.programs import script
from pages.ranks import report_cases

LAB = "06-long-sequences"
FILES = ROOT / "experiments" / "38-long-sequences"
SHOWN: dict[str, dict[str, Any]] = {
    "counts": {},
    "grouped": {"groups": 2},
    "mask": {"mask": True},
    "train": {"train": 20},
    "ignored": {"train": 20, "ignored": True},
}


def read_solution(language: str = "en") -> str:
    """Return the solution's code."""
    return "\n".join(python_blocks(solution_page(LAB, language)))


def grade_code(code: str, folder: Path) -> dict[str, str]:
    """Return what the grader says of faulty.py, with `code` written behind it."""
    path = folder / "faulty.py"
    path.write_text(f"{(FILES / 'faulty.py').read_text('utf-8')}\n\n{code}", "utf-8")
    return dict(script(FILES / "grade_faulty.py").grade(path))


def blocks(folder: Path) -> dict[str, str]:
    """What the page shows: of one run each paragraph, of the others what they are shown for."""
    reports = report_cases(4, FILES / "attend.py", SHOWN)
    _, balance, sent = reports.pop("counts").split("\n\n")
    texts = {**reports, "balance": balance, "sent": sent}
    texts["grouped"] = texts["grouped"].split("\n\n")[2]
    lines = (f"{name}: {verdict}" for name, verdict in grade_code("", folder).items())
    texts["faults"] = "\n".join(textwrap.fill(line, 78, subsequent_indent="  ") for line in lines)
    return {name: fence(text) for name, text in texts.items()}


def render() -> Iterator[tuple[Path, str]]:
    """Yield the lab's page and its answers in each language."""
    with tempfile.TemporaryDirectory() as folder:
        texts = blocks(Path(folder))
    faults = {"faults": texts.pop("faults")}
    for language in LANGUAGES:
        page, answers = lab_page(LAB, language), solution_page(LAB, language)
        yield page, fill_blocks(page, texts)
        yield answers, fill_blocks(answers, faults)
