"""`shardbook compare`: only once your notes are committed, for who looks first finds nothing."""

import shlex
from pathlib import Path

from notelab.book.finding_labs import default_labs
from notelab.book.workbook import Bench, Workbook, open_lab
from notelab.compare import choices
from notelab.compare.matching import Comparison, compared
from notelab.errors import NotelabError, display_path
from notelab.lab.lab import LAB_FILE, Lab
from notelab.page.note import Note
from notelab.sources.git.uncommitted import uncommitted


def lab_to_compare(here: Path, bench: Bench) -> Path:
    """Return the lab one stands in, else the one lab that is compared with pages not its own.

    Raises:
        NotelabError: there is none, or several.
    """
    if (here / LAB_FILE).is_file():
        return here
    labs = [bench.lab(folder) for folder in default_labs(here)]
    own = [lab for lab in labs if lab.compares]
    if len(own) == 1:
        return own[0].folder
    names = ", ".join(display_path(lab.folder) for lab in own)
    if own:
        raise NotelabError(f"which lab to compare? {names}", hint="`shardbook compare LAB`")
    hint = "start one with `shardbook new NAME --from LAB`"
    raise NotelabError("no lab here names a solution to be compared with", hint=hint)


def compare(folder: Path, bench: Bench) -> tuple[Comparison, list[str]]:
    """Set a lab's choices beside its solution's; return them, and what there is to remark.

    Raises:
        NotelabError: nothing was written yet, it isn't committed, or there is no solution.
    """
    book = open_lab(folder, bench)
    lab = book.lab
    yours = choices.of_lab(book)
    if not yours:
        raise NotelabError(
            f"{display_path(lab.folder)} has no choice with a citation yet",
            hint=f"write first; `shardbook check {_typed(lab)}` says what is wanted",
        )
    _refuse_uncommitted(lab, book)
    places = choices.solution_pages(book)
    missing = next((place for place in places if not place.is_file()), None)
    if missing or not places:
        what = (
            f"its solution {display_path(missing)} is missing"
            if missing
            else "it names no solution"
        )
        raise NotelabError(
            f"{display_path(lab.folder)} can't be compared: {what}",
            hint=f'in {LAB_FILE}, under [lab]: solution = ["path/to/page.md"]',
        )
    theirs: list[choices.Choice] = []
    remarks: list[str] = []
    for place in places:
        note, found = choices.of_page(book, place)
        theirs += found
        remarks += _other_commits(book, note, place)
    return compared(yours, theirs), remarks


def _refuse_uncommitted(lab: Lab, book: Workbook) -> None:
    written = [one.page.path for one in book.views if one.exists and one.page.listed]
    written = [path for path in written if path.is_relative_to(lab.folder)]
    typed = f"git add {_typed(lab)} && git commit -m 'My reading'"
    names = uncommitted(lab.root, written)
    if names is None:
        raise NotelabError(
            f"{display_path(lab.folder)} is in no git repository, so nothing in it is committed",
            hint=f"`git init`, then `{typed}`",
        )
    if names:
        raise NotelabError(
            f"commit your notes first, then compare; not committed: {', '.join(names)}",
            hint=f"`{typed}`",
        )


def _other_commits(book: Workbook, note: Note, place: Path) -> list[str]:
    """Say where a solution was read at another commit than the lab's pin."""
    pins = {name: pin.commit for name, pin in book.pins.items() if pin.commit}
    return [
        f"{display_path(place)} read {row.source} at {row.prefix}, you at {pins[row.source][:12]}: "
        "lines may have moved, and pairs be missed"
        for row in note.front.commits
        if row.source in pins and not pins[row.source].startswith(row.prefix.lower())
    ]


def _typed(lab: Lab) -> str:
    return shlex.quote(display_path(lab.folder))
