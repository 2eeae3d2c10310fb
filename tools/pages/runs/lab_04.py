"""Lab 04: what routing to experts prints, and which ways to finish gradients are wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages.blocks import LANGUAGES, fence, fill_blocks, lab_page, solution_page
from pages.programs import ROUTE
from pages.ranks import report_cases

LAB = "04-experts"
SHOWN: dict[str, dict[str, Any]] = {
    "route": {},
    "all-gather": {"dispatch": "all-gather"},
    "skew": {"skew": 1.0},
    "capacity": {"skew": 1.0, "capacity": 1.25},
    "aux": {"skew": 1.0, "aux": 0.01, "steps": 50},
}
WAYS = {f"{way}{ep}": {"finish": way, "ep": ep} for way in "abcd" for ep in (4, 2, 1)}


def paragraphs_of(cases: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """What rank 0 says of each case, in paragraphs."""
    return {name: text.split("\n\n") for name, text in report_cases(4, ROUTE, cases).items()}


def blocks() -> dict[str, str]:
    """What the lab's page shows: one run whole, of the others what they are shown for."""
    paragraphs = paragraphs_of(SHOWN)
    parts = {"route": "\n\n".join(paragraphs["route"]), "all-gather": paragraphs["all-gather"][2]}
    parts |= {name: paragraphs[name][1] for name in ("skew", "capacity", "aux")}
    return {name: fence(text) for name, text in parts.items()}


def verdicts() -> str:
    """The answers' table: a way, and its gradients' error at each number of expert ranks."""
    paragraphs = paragraphs_of(WAYS)
    rows = ["| | EP = 4 | EP = 2 | EP = 1 |", "|---|---|---|---|"]
    for way in "abcd":
        for part in ("router", "experts"):
            cells = [
                re.sub(r"off by (\S+), (\S+) x as long", r"\1, ×\2", match[1].strip())
                for ep in (4, 2, 1)
                if (match := re.search(rf"^  {part} +(.*)$", paragraphs[f"{way}{ep}"][3], re.M))
            ]
            rows.append(f"| {way}, {part} | {' | '.join(c.replace('equal', '=') for c in cells)} |")
    return "\n".join(rows)


def render() -> Iterator[tuple[Path, str]]:
    """Yield the lab's page and its answers in each language."""
    texts, table = blocks(), verdicts()
    for language in LANGUAGES:
        page, answers = lab_page(LAB, language), solution_page(LAB, language)
        yield page, fill_blocks(page, texts)
        yield answers, fill_blocks(answers, {"ways": table})
