"""`shardbook compare`; the notes must be committed, so that learners write before they look."""

import os
import shlex
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import astuple

from notelab.book.discovery import default_labs
from notelab.book.workbook import CheckSession, Workbook, open_lab
from notelab.commands import choices
from notelab.commands.choices import Choice, Comparison, Pair
from notelab.errors import NotelabError, display_path, sanitize
from notelab.files import write_files
from notelab.lab.lab import LAB_FILE, Lab
from notelab.page.note import Note
from notelab.sources.git.git_command import list_uncommitted


def find_lab(folder: Path, bench: CheckSession) -> Path:
    """Return `folder` if it is a lab, else the one lab below it that is compared with other pages.

    Raises:
        NotelabError: there is no such lab, or there are several.
    """
    if (folder / LAB_FILE).is_file():
        return folder
    labs = [bench.lab(folder) for folder in default_labs(folder)]
    comparable = [lab for lab in labs if lab.compares]
    if len(comparable) == 1:
        return comparable[0].folder
    names = ", ".join(display_path(lab.folder) for lab in comparable)
    if comparable:
        raise NotelabError(
            f"several labs can be compared: {names}", hint="name one: `shardbook compare LAB`"
        )
    hint = "start one with `shardbook new NAME --from LAB`"
    raise NotelabError("no lab here names a solution to compare with", hint=hint)


def compare(folder: Path, bench: CheckSession) -> tuple[choices.Comparison, list[str]]:
    """Match a lab's choices with its solution's; return the comparison and remarks.

    Raises:
        NotelabError: the notes have no choice or are not committed, or there is no solution.
    """
    book = open_lab(folder, bench)
    lab = book.lab
    own_choices = choices.list_choices(book)
    if not own_choices:
        raise NotelabError(
            f"{display_path(lab.folder)} has no choice with a citation yet",
            hint=f"write choices; `shardbook check {_quote_folder(lab)}` says what is missing",
        )
    _refuse_uncommitted(lab, book)
    _refuse_unfinished(book, own_choices)
    solution_paths = choices.solution_pages(book)
    missing = next((path for path in solution_paths if not path.is_file()), None)
    if missing or not solution_paths:
        problem = (
            f"its solution {display_path(missing)} is missing"
            if missing
            else "it names no solution"
        )
        raise NotelabError(
            f"{display_path(lab.folder)} can't be compared: {problem}",
            hint=f'in {LAB_FILE}, under [lab]: solution = ["path/to/page.md"]',
        )
    solution_choices: list[choices.Choice] = []
    remarks: list[str] = []
    for path in solution_paths:
        note, page_choices = choices.read_choices(book, path)
        solution_choices += page_choices
        remarks += _remark_commits(book, note, path)
    return choices.match_choices(own_choices, solution_choices), remarks


def _refuse_uncommitted(lab: Lab, book: Workbook) -> None:
    note_paths = [view.page.path for view in book.views if view.exists and view.page.listed]
    note_paths = [path for path in note_paths if path.is_relative_to(lab.folder)]
    command = f"git add {_quote_folder(lab)} && git commit -m 'My reading'"
    names = list_uncommitted(lab.root, note_paths)
    if names is None:
        raise NotelabError(
            f"{display_path(lab.folder)} is in no git repository, so nothing in it is committed",
            hint=f"`git init`, then `{command}`",
        )
    if names:
        raise NotelabError(
            f"commit your notes first, then compare; not committed: {', '.join(names)}",
            hint=f"`{command}`",
        )


def _refuse_unfinished(book: Workbook, own_choices: list[choices.Choice]) -> None:
    """Refuse notes with fewer choices than the lab asks for: the solution gives the others away."""
    counts = Counter(choice.filename for choice in own_choices)
    unfinished = [
        f"{view.filename} has {counts[view.filename]} of {view.page.table.min_choices} choices"
        for view in book.views
        if view.page.listed and view.page.original is None
        and view.page.path.is_relative_to(book.lab.folder)
        and counts[view.filename] < (view.page.table.min_choices or 0)
    ]  # fmt: skip
    if unfinished:
        raise NotelabError(
            f"the solution opens when the lab's notes have their choices: {'; '.join(unfinished)}",
            hint="write the missing choices and commit them, then compare",
        )


def _remark_commits(book: Workbook, note: Note, path: Path) -> list[str]:
    """Return a remark for each source that a solution read at another commit than the lab's pin."""
    pins = {name: pin.commit for name, pin in book.pins.items() if pin.commit}
    return [
        f"{display_path(path)} read {row.source} at {row.prefix}, your notes at "
        f"{pins[row.source][:12]}: lines may have moved, so pairs may be missed"
        for row in note.front.commits
        if row.source in pins and not pins[row.source].startswith(row.prefix.lower())
    ]


def _quote_folder(lab: Lab) -> str:
    return shlex.quote(display_path(lab.folder))


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
