"""`shardbook fetch`: reads the cited files into the store, or checks a pinned tree out."""

from pathlib import Path

from notelab.book.discovery import unknown_source_error
from notelab.book.evidence import State
from notelab.book.workbook import CheckSession, open_lab, open_labs
from notelab.errors import NotelabError, display_path


def fetch(labs: list[Path], source: str | None, session: CheckSession) -> tuple[list[str], bool]:
    """Read every cited file (of one source) into the store; return a line for each.

    The second result says whether a file is missing.

    Raises:
        NotelabError: no lab has the source.
    """
    lines, missing = [], False
    if source is not None:
        _find_owner(labs, source, session)
    for book in open_labs(dict.fromkeys(labs), session, source):
        for file in book.evidence.list_files():
            if source not in (None, file.source):
                continue
            size = sum(len(line) + 1 for line in file.lines)
            text = f"{size:,} bytes  {file.blob[:12]}  {file.provider}"
            if file.state is not State.PROVED:
                missing = True
                text = "not available: " + ("; ".join(file.reasons) or file.state.value)
            lines.append(f"{file.source}:{file.path}  {text}")
    return lines or ["nothing is cited" + (f" from `{source}`" if source else "")], missing


def check_out(labs: list[Path], source: str | None, directory: Path, session: CheckSession) -> str:
    """Check a source's pinned tree out into `directory`; return what was done.

    Raises:
        NotelabError: no source is named and there are several, or the source has no usable pin, or
            no provider has its whole tree.
    """
    folder, source = _find_owner(labs, source, session)
    book = open_lab(folder, session, only=set())
    pin = book.pins[source]
    if not pin.commit:
        raise NotelabError(f"{display_path(pin.path)}: {pin.problem}")
    session.library.worktree(book.evidence.source(source), directory)
    return f"{directory}: {source} at {pin.commit}"


def _find_owner(labs: list[Path], source: str | None, session: CheckSession) -> tuple[Path, str]:
    """Return the first lab that has the named source, or else the only source, and its name."""
    folder_by_source: dict[str, Path] = {}
    for folder in labs:
        folder_by_source = dict.fromkeys(session.lab(folder).sources, folder) | folder_by_source
    if source is None and len(folder_by_source) == 1:
        source = next(iter(folder_by_source))
    if source is None:
        raise NotelabError(
            "--worktree writes one source, and the lab has several",
            hint=f"add --source, one of: {', '.join(folder_by_source)}",
        )
    if source not in folder_by_source:
        raise unknown_source_error(source, folder_by_source)
    return folder_by_source[source], source
