"""Formats a comparison for a terminal, as JSON and as a page of the site, without source text."""

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import astuple

from notelab.atomic_write import write_files
from notelab.compare.choices import Choice
from notelab.compare.matching import Comparison
from notelab.errors import NotelabError, display_path, sanitize

PAGE = "comparison.md"
_MARK = "<!-- written by shardbook compare --page; written anew each time -->"
_WORDS = {
    "en": ["Your choices and the solution's", "Matched", "Missed", "Yours alone", "solution"],
    "es": [
        "Tus decisiones y las de la solución",
        "Coincidencias",
        "Se te escaparon",
        "Solo tuyas",
        "solución",
    ],
}


def format_text(comparison: Comparison) -> str:
    """Return the comparison for a terminal of 80 columns."""
    lines = []
    for heading, pairs in zip(_WORDS["en"][1:4], astuple(comparison), strict=True):
        lines += [f"{heading}: {len(pairs)}"]
        for choice, solution in pairs:
            lines += _format_choice(choice, "  ") if choice else []
            lines += _format_choice(solution, "    = " if choice else "  ") if solution else []
        lines.append("")
    lines += ["Before you believe what you missed, open its lines: `shardbook show CITATION`."]
    return "\n".join(lines) + "\n"


def _format_choice(choice: Choice, lead: str) -> Iterator[str]:
    indent = " " * (len(lead) + 2)
    position, ranges = f"{choice.filename}:{choice.row}", ", ".join(map(str, choice.citations))
    for part, first_indent in ((choice.title, lead), (position, indent), (ranges, indent)):
        yield from textwrap.wrap(
            sanitize(part), 80, initial_indent=first_indent, subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def to_data(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison for JSON; a missing side is a choice that cites nothing."""
    names = ("matched", "missed", "yours")
    return {
        name: [
            {"yours": choice or Choice(), "solution": solution or Choice()}
            for choice, solution in pairs
        ]
        for name, pairs in zip(names, astuple(comparison), strict=True)
    }


def write_page(comparison: Comparison, folder: Path, language: str) -> Path:
    """Write the comparison as a page in the lab's folder, which the served site shows.

    Raises:
        NotelabError: another file has that name.
    """
    path = folder / PAGE
    if os.path.lexists(path) and (path.is_symlink() or _MARK not in path.read_text("utf-8")):
        hint = "move it; `compare --page` writes its own page there"
        raise NotelabError(
            f"{display_path(path)} is there already, and isn't a comparison", hint=hint
        )
    title, *headings, solution = _WORDS.get(language, _WORDS["en"])
    lines = ["---", f'title: "{title}"', "---", "", _MARK, "", f"# {title}"]
    for heading, pairs in zip(headings, astuple(comparison), strict=True):
        lines += ["", f"## {heading}: {len(pairs)}", ""]
        for choice, solution_choice in pairs:
            first, second = (choice, solution_choice) if choice else (solution_choice, None)
            assert first
            lines.append(f"- {_format_link(first, folder)}")
            lines += [f"    - {solution}: {_format_link(second, folder)}"] if second else []
    write_files({path: ("\n".join(lines) + "\n").encode()})
    return path


def _format_link(choice: Choice, folder: Path) -> str:
    path = Path(os.path.relpath(choice.filename, folder)).as_posix()
    title = choice.title.replace("[", "(").replace("]", ")")
    ranges = ", ".join(f"`{cited_range}`" for cited_range in choice.citations)
    return f"**{title}** ([{choice.row}]({path})): {ranges}"
