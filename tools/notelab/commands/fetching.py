"""`shardbook fetch`: the cited files into the store, or a pinned tree into a folder."""

from pathlib import Path

from notelab.book.evidence import State
from notelab.book.finding_labs import no_such_source
from notelab.book.workbook import Bench, open_lab, open_labs
from notelab.errors import NotelabError, display_path


def fetch(labs: list[Path], source: str | None, bench: Bench) -> tuple[list[str], bool]:
    """Bring every cited file (of one source) into the store; return what to say of each.

    Returns also whether one is missing.

    Raises:
        NotelabError: no lab has the source.
    """
    lines, missing = [], False
    if source is not None:
        _owner(labs, source, bench)
    for book in open_labs(dict.fromkeys(labs), bench, source):
        for file in book.evidence.gathered():
            if source not in (None, file.source):
                continue
            size = sum(len(line) + 1 for line in file.lines)
            said = f"{size:,} bytes  {file.blob[:12]}  {file.provider}"
            if file.state is not State.PROVED:
                missing = True
                said = "not at hand: " + ("; ".join(file.reasons) or file.state.value)
            lines.append(f"{file.source}:{file.path}  {said}")
    return lines or ["nothing is cited" + (f" from `{source}`" if source else "")], missing


def lay_out(labs: list[Path], source: str | None, directory: Path, bench: Bench) -> str:
    """Lay a source's pinned tree out in `directory`.

    Raises:
        NotelabError: the source is not named and there are several, or it has no usable pin, or
            its tree can't be had.
    """
    folder, source = _owner(labs, source, bench)
    book = open_lab(folder, bench, only=set())
    pin = book.pins[source]
    if not pin.commit:
        raise NotelabError(f"{display_path(pin.path)}: {pin.problem}")
    bench.library.worktree(book.evidence.source(source), directory)
    return f"{directory}: {source} at {pin.commit}"


def _owner(labs: list[Path], source: str | None, bench: Bench) -> tuple[Path, str]:
    """Return the first lab that has a source (the only one where none is named), and its name."""
    known: dict[str, Path] = {}
    for folder in labs:
        known = dict.fromkeys(bench.lab(folder).sources, folder) | known
    if source is None and len(known) == 1:
        source = next(iter(known))
    if source is None:
        raise NotelabError("which source to lay out?", hint=f"--source, one of: {', '.join(known)}")
    if source not in known:
        raise no_such_source(source, known)
    return known[source], source
