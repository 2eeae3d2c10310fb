"""A comparison for a terminal, for a program, and as a page of the site. No source text in any."""

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, astuple

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


def text(found: Comparison) -> str:
    """Return the comparison for a terminal of 80 columns."""
    lines = []
    for heading, pairs in zip(_WORDS["en"][1:4], astuple(found), strict=True):
        lines += [f"{heading}: {len(pairs)}"]
        for mine, theirs in pairs:
            lines += _told(mine, "  ") if mine else []
            lines += _told(theirs, "    = " if mine else "  ") if theirs else []
        lines.append("")
    lines += ["Before you believe what you missed, open its lines: `shardbook show CITATION`."]
    return "\n".join(lines) + "\n"


def _told(choice: Choice, lead: str) -> Iterator[str]:
    rest = " " * (len(lead) + 2)
    place, cited = f"{choice.filename}:{choice.row}", ", ".join(map(str, choice.citations))
    for said, first in ((choice.title, lead), (place, rest), (cited, rest)):
        yield from textwrap.wrap(
            sanitize(said), 80, initial_indent=first, subsequent_indent=rest,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def data(found: Comparison) -> dict[str, Any]:
    """Return the comparison as it is written as JSON; the side that is missing cites nothing."""
    return {
        name: [
            {"yours": mine or Choice(), "solution": theirs or Choice()} for mine, theirs in pairs
        ]
        for name, pairs in asdict(found).items()
    }


def write_page(found: Comparison, folder: Path, language: str) -> Path:
    """Write the comparison as a page of the lab's folder, which the site shows while serving.

    Raises:
        NotelabError: another file of that name is there.
    """
    path = folder / PAGE
    if os.path.lexists(path) and (path.is_symlink() or _MARK not in path.read_text("utf-8")):
        hint = "move it; `compare --page` writes its own page there"
        raise NotelabError(
            f"{display_path(path)} is there already, and isn't a comparison", hint=hint
        )
    title, *headings, solution = _WORDS.get(language, _WORDS["en"])
    lines = ["---", f'title: "{title}"', "---", "", _MARK, "", f"# {title}"]
    for heading, pairs in zip(headings, astuple(found), strict=True):
        lines += ["", f"## {heading}: {len(pairs)}", ""]
        for mine, theirs in pairs:
            first, second = (mine, theirs) if mine else (theirs, None)
            assert first
            lines.append(f"- {_linked(first, folder)}")
            lines += [f"    - {solution}: {_linked(second, folder)}"] if second else []
    write_files({path: ("\n".join(lines) + "\n").encode()})
    return path


def _linked(choice: Choice, folder: Path) -> str:
    path = Path(os.path.relpath(choice.filename, folder)).as_posix()
    title = choice.title.replace("[", "(").replace("]", ")")
    cited = ", ".join(f"`{one}`" for one in choice.citations)
    return f"**{title}** ([{choice.row}]({path})): {cited}"
