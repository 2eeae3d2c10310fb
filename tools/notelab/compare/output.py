"""Formats a comparison for a terminal, as JSON and as a page of the site, without source text."""

import os
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import astuple

from notelab.compare.choices import Choice, Comparison, Pair
from notelab.errors import NotelabError, display_path, sanitize
from notelab.files import write_files

PAGE = "comparison.md"
_MARK = "<!-- written by shardbook compare --page; each run replaces it -->"
_MARK_START = _MARK.partition(";")[0]  # what every version has written
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


def format_text(comparison: Comparison, candidates: Collection[str] = ()) -> str:
    """Return the comparison for a terminal of 80 columns.

    If `candidates` names sections of the solution, of the missed choices only those in these
    sections are listed, and the others are counted.
    """
    lines = [f"Matched: {_count_own(comparison.matched)}"]
    previous = None
    for choice, solution in comparison.matched:
        lines += _format_choice(choice, "  ") if choice and choice is not previous else []
        lines += _format_choice(solution, "    = ") if solution else []
        previous = choice
    lines += ["", f"Missed: {len(comparison.missed)}"]
    missed = [solution for _, solution in comparison.missed if solution]
    listed = [choice for choice in missed if choice.section in candidates] if candidates else missed
    for choice in listed:
        lines += _format_choice(choice, "  ")
    if further := len(missed) - len(listed):
        lines.append(f"  {further} more: `shardbook compare --all` lists them")
    lines += ["", f"Yours alone: {len(comparison.own_only)}"]
    for choice, _ in comparison.own_only:
        lines += _format_choice(choice, "  ") if choice else []
    lines.append("")
    lines += ["Before you accept a missed choice, read its lines: `shardbook show CITATION`."]
    return "\n".join(lines) + "\n"


def _count_own(matched: list[Pair]) -> int:
    return len({id(choice) for choice, _ in matched})


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
            {"yours": _to_json(choice), "solution": _to_json(solution)}
            for choice, solution in pairs
        ]
        for name, pairs in zip(names, astuple(comparison), strict=True)
    }


def _to_json(choice: Choice | None) -> dict[str, Any]:
    choice = choice or Choice()
    fields = ("title", "filename", "row", "section", "citations")
    return {field: getattr(choice, field) for field in fields}


def write_page(comparison: Comparison, folder: Path, language: str) -> Path:
    """Write the comparison as a page in the lab's folder, which the served site shows.

    Raises:
        NotelabError: another file has that name.
    """
    path = folder / PAGE
    if os.path.lexists(path) and (path.is_symlink() or _MARK_START not in path.read_text("utf-8")):
        hint = "move it; `compare --page` writes its own page there"
        raise NotelabError(f"{display_path(path)} already exists and isn't a comparison", hint=hint)
    title, *headings, solution = _WORDS.get(language, _WORDS["en"])
    lines = ["---", f'title: "{title}"', "---", "", _MARK, "", f"# {title}"]
    for heading, pairs in zip(headings, astuple(comparison), strict=True):
        count = _count_own(pairs) if pairs is comparison.matched else len(pairs)
        lines += ["", f"## {heading}: {count}", ""]
        previous = None
        for choice, solution_choice in pairs:
            first, second = (choice, solution_choice) if choice else (solution_choice, None)
            assert first
            lines += [f"- {_format_link(first, folder)}"] if first is not previous else []
            previous = first
            lines += [f"    - {solution}: {_format_link(second, folder)}"] if second else []
    write_files({path: ("\n".join(lines) + "\n").encode()})
    return path


def _format_link(choice: Choice, folder: Path) -> str:
    path = Path(os.path.relpath(choice.filename, folder)).as_posix()
    title = choice.title.replace("[", "(").replace("]", ")")
    ranges = ", ".join(f"`{cited_range}`" for cited_range in choice.citations)
    return f"**{title}** ([{choice.row}]({path})): {ranges}"
