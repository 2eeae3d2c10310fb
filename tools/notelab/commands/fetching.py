"""`shardbook fetch`: the cited files into the store, or a pinned tree into a folder."""

from pathlib import Path

from notelab.book.evidence import State
from notelab.book.workbook import Bench, open_lab, open_labs
from notelab.errors import NotelabError, shown


def fetch(labs: list[Path], bench: Bench) -> tuple[list[str], bool]:
    """Bring every cited file into the store; return a line a file, and whether one is missing."""
    lines, missing = [], False
    for book in open_labs(dict.fromkeys(labs), bench):
        for file in book.evidence.gathered():
            if file.state is State.PROVED:
                size = sum(len(line) + 1 for line in file.lines)
                lines.append(
                    f"{file.source}:{file.path}  {size:,} bytes  {file.blob[:12]}  {file.provider}"
                )
                continue
            missing = True
            why = "; ".join(file.reasons) or file.state.value
            lines.append(f"{file.source}:{file.path}  not at hand: {why}")
    return lines, missing


def lay_out(labs: list[Path], source: str | None, directory: Path, bench: Bench) -> str:
    """Lay a source's pinned tree out in `directory`.

    Raises:
        NotelabError: the source is not named and there are several, or it has no usable pin, or
            its tree can't be had.
    """
    known: dict[str, Path] = {}
    for folder in labs:
        lab = bench.lab(folder)
        for name in lab.sources:
            known.setdefault(name, folder)
    if source is None and len(known) == 1:
        source = next(iter(known))
    if source is None or source not in known:
        names = ", ".join(known)
        what = f"no lab has a source called {source!r}" if source else "which source to lay out?"
        raise NotelabError(what, hint=f"--source, one of: {names}")
    book = open_lab(known[source], bench, only=set())
    pin = book.pins[source]
    if not pin.commit:
        raise NotelabError(f"{shown(pin.path)}: {pin.problem}")
    bench.library.worktree(book.evidence.source(source), directory)
    return f"{directory}: {source} at {pin.commit}"
