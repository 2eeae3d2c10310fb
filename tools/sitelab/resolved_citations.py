"""Resolves the citations of each page at the pins, so that cards can show the cited lines.

The text comes only from the source store, which `make check` filled: building the site asks no
remote. If a file isn't in the store, its citations are plain permalinks.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from notelab.book.discovery import labs_below
from notelab.book.evidence import CitedFile
from notelab.book.workbook import CheckSession, Workbook, is_usable, open_lab
from notelab.cache import DiskCache
from notelab.cited.outline import Outline
from notelab.page.note import Note
from notelab.sources.library import Library
from notelab.sources.store import Store, default_root

Lines = tuple[str, ...]  # a file's lines
# A host's folder for files, and what it writes between two line numbers.
_HOSTS = {"https://github.com/": ("blob", "-L"), "https://gitlab.com/": ("-/blob", "-")}
CONTEXT = 3  # lines that a card shows above and below the cited lines


class ResolvedCitation(msgspec.Struct, frozen=True):
    """A citation of a page, resolved.

    Attributes:
        source: the source's name in lab.toml.
        path: of the file, from its repository's root.
        first: line, 1-based, to `last`, inclusive.
        symbol: the function or class around the lines, with those around it ("" in a module).
        commit: the pin.
        release: its name, or "".
        licence: of the source, or "".
        permalink: to the lines at the commit on the source's host, or "" for an unknown host.
        statements: the first and the last line of the statements that contain a card's lines.
        text: the file's lines, or None if they aren't in the store.
    """

    source: str
    path: str
    first: int
    last: int
    symbol: str
    commit: str
    release: str
    licence: str
    permalink: str
    statements: tuple[int, int]
    text: Lines | None


Resolved = dict[tuple[str | int, ...], ResolvedCitation]


def open_offline_session() -> CheckSession:
    """Return a session that reads labs with the store as it is and asks no remote."""
    configured = os.environ.get("SHARDBOOK_CACHE")
    store = Path(configured).expanduser().absolute() if configured else default_root()
    return CheckSession(DiskCache(store / "memo"), Library(Store(store), {}, offline=True))


def resolve_citations(
    root: Path, session: CheckSession, resolved: Resolved
) -> dict[Path, dict[str, ResolvedCitation]]:
    """Return the citations, by their text, of each page that a lab below `root` proves.

    Args:
        root: the repository's folder.
        session: reads the labs.
        resolved: what earlier calls have resolved; this call uses it and adds to it.

    Raises:
        NotelabError: a lab.toml or a lock cannot be read.
    """
    pages: dict[Path, dict[str, ResolvedCitation]] = {}
    decoded: dict[str, Lines] = {}
    for folder in labs_below(root):
        book = open_lab(folder, session)
        for view in book.views:
            if view.note:
                pages.setdefault(view.page.path.resolve(), {}).update(
                    _resolve_note(book, view.note, decoded, resolved)
                )
    return pages


def _resolve_note(
    book: Workbook, note: Note, decoded: dict[str, Lines], resolved: Resolved
) -> Iterator[tuple[str, ResolvedCitation]]:
    for citation in note.citations:
        if not is_usable(citation):
            continue
        file = book.resolver.resolve(citation).file
        if file is None:
            continue
        table, commit = book.lab.sources[file.source], book.pins[file.source].commit
        first, last = citation.first, citation.last
        lines = (citation.path, first, last)
        key = (file.source, table.url, table.release, table.licence, commit, file.blob, *lines)
        if key not in resolved or resolved[key].text is None:  # the store may have the text by now
            resolved[key] = ResolvedCitation(
                source=file.source,
                path=citation.path,
                first=first,
                last=last,
                symbol=_qualified_name(file, first, last),
                commit=commit,
                release=table.release,
                licence=table.licence,
                permalink=make_permalink(table.url, commit, citation.path, first, last),
                statements=enclosing_statements(file.outline, len(file.lines), first, last),
                text=_decode_lines(file, last, decoded),
            )
        yield citation.text, resolved[key]


def _decode_lines(file: CitedFile, last: int, decoded: dict[str, Lines]) -> Lines | None:
    if len(file.lines) < last:
        return None
    if file.blob not in decoded:
        decoded[file.blob] = tuple(line.decode("utf-8", "replace") for line in file.lines)
    return decoded[file.blob]


def enclosing_statements(
    outline: Outline | None, length: int, first: int, last: int
) -> tuple[int, int]:
    """Return the first and last line of the statements that contain lines and their context."""
    rows = outline.statements if outline else []
    begin = max((top for top, _ in rows if top <= first - CONTEXT), default=1)
    return begin, min((end for _, end in rows if end >= last + CONTEXT), default=length)


def _qualified_name(file: CitedFile, first: int, last: int) -> str:
    outline = file.outline
    symbol = outline.innermost(first, last) if outline else None
    qualifiers = []
    while outline and symbol:
        qualifiers.append(symbol.name)
        symbol = outline.symbols[symbol.parent] if symbol.parent >= 0 else None
    return qualifiers[0] if qualifiers and "." in qualifiers[0] else ".".join(reversed(qualifiers))


def make_permalink(url: str, commit: str, path: str, first: int, last: int) -> str:
    """Return the address of lines at a commit, for the hosts whose form is known.

    >>> make_permalink("https://github.com/NVIDIA/Megatron-LM.git", "55ac", "a/b c.py", 3, 5)
    'https://github.com/NVIDIA/Megatron-LM/blob/55ac/a/b%20c.py#L3-L5'
    >>> make_permalink("https://gitlab.com/group/project", "55ac", "a.py", 3, 3)
    'https://gitlab.com/group/project/-/blob/55ac/a.py#L3'
    >>> make_permalink("https://example.org/x.git", "55ac", "a.py", 3, 3)
    ''
    """
    base = url.removesuffix("/").removesuffix(".git")
    for host, (folder, dash) in _HOSTS.items():
        if base.startswith(host):
            end = f"{dash}{last}" if last != first else ""
            return f"{base}/{folder}/{commit}/{quote(path)}#L{first}{end}"
    return ""
