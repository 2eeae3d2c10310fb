"""`shardbook compare`; the notes must be committed, so that learners write before they look."""

import shlex
from collections import Counter
from pathlib import Path

from notelab.book.discovery import default_labs
from notelab.book.workbook import CheckSession, Workbook, open_lab
from notelab.compare import choices
from notelab.compare.matching import Comparison, match_choices
from notelab.errors import NotelabError, display_path
from notelab.lab.lab import LAB_FILE, Lab
from notelab.page.note import Note
from notelab.sources.git.command import list_uncommitted


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


def compare(folder: Path, bench: CheckSession) -> tuple[Comparison, list[str]]:
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
    return match_choices(own_choices, solution_choices), remarks


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
