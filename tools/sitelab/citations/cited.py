"""What each page of the workbook cites, resolved at the pins: what a card shows of it.

The text comes from the source store alone, as `make check` filled it: building the site asks no
remote. Where it isn't at hand a citation is a plain permalink.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from notelab.book.evidence import CitedFile
from notelab.book.finding_labs import labs_below
from notelab.book.workbook import Bench, Workbook, open_lab, usable
from notelab.cache import DiskCache
from notelab.cited.outline import Outline
from notelab.page.note import Note
from notelab.sources.library import Library
from notelab.sources.store import Store, default_root

Text = tuple[str, ...]  # a file's lines
# Where a host shows a file, and what it writes between two lines.
_HOSTS = {"https://github.com/": ("blob", "-L"), "https://gitlab.com/": ("-/blob", "-")}
AROUND = 3  # lines of context that a card shows, either way


class Cited(msgspec.Struct, frozen=True):
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
        within: the lines from where a statement begins to where one ends, around what a card shows.
        text: the file's lines, or None where they aren't at hand.
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
    within: tuple[int, int]
    text: Text | None


def offline_bench() -> Bench:
    """Return what labs are opened with: the store as it is, no remote."""
    asked = os.environ.get("SHARDBOOK_CACHE")
    store = Path(asked).expanduser().absolute() if asked else default_root()
    return Bench(DiskCache(store / "memo"), Library(Store(store), {}, offline=True))


def by_page(root: Path, bench: Bench | None = None) -> dict[Path, dict[str, Cited]]:
    """Return, for each page that a lab below `root` proves, its citations by text.

    Raises:
        NotelabError: a lab.toml or a lock cannot be read.
    """
    bench = bench or offline_bench()
    pages: dict[Path, dict[str, Cited]] = {}
    texts: dict[str, Text] = {}
    for folder in labs_below(root):
        book = open_lab(folder, bench)
        for view in book.views:
            if view.note:
                pages.setdefault(view.page.path.resolve(), {}).update(
                    _cited(book, view.note, texts)
                )
    return pages


def _cited(book: Workbook, note: Note, texts: dict[str, Text]) -> Iterator[tuple[str, Cited]]:
    for citation in note.citations:
        if not usable(citation):
            continue
        file = book.resolver.resolve(citation).file
        if file is None:
            continue
        table, commit = book.lab.sources[file.source], book.pins[file.source].commit
        first, last = citation.first, citation.last
        yield (
            citation.text,
            Cited(
                source=file.source,
                path=citation.path,
                first=first,
                last=last,
                symbol=_symbol(file, first, last),
                commit=commit,
                release=table.release,
                licence=table.licence,
                permalink=permalink(table.url, commit, citation.path, first, last),
                within=within(file.outline, len(file.lines), first, last),
                text=_text(file, last, texts),
            ),
        )


def _text(file: CitedFile, last: int, texts: dict[str, Text]) -> Text | None:
    if len(file.lines) < last:
        return None
    if file.blob not in texts:
        texts[file.blob] = tuple(line.decode("utf-8", "replace") for line in file.lines)
    return texts[file.blob]


def within(outline: Outline | None, length: int, first: int, last: int) -> tuple[int, int]:
    """Return whole statements' first and last line, around lines of a file and their context."""
    rows = outline.statements if outline else []
    begin = max((top for top, _ in rows if top <= first - AROUND), default=1)
    return begin, min((end for _, end in rows if end >= last + AROUND), default=length)


def _symbol(file: CitedFile, first: int, last: int) -> str:
    outline = file.outline
    symbol = outline.innermost(first, last) if outline else None
    names = []
    while outline and symbol:
        names.append(symbol.name)
        symbol = outline.symbols[symbol.parent] if symbol.parent >= 0 else None
    return names[0] if names and "." in names[0] else ".".join(reversed(names))


def permalink(url: str, commit: str, path: str, first: int, last: int) -> str:
    """Return the address of lines at a commit, for the hosts whose form is known.

    >>> permalink("https://github.com/NVIDIA/Megatron-LM.git", "55ac", "a/b c.py", 3, 5)
    'https://github.com/NVIDIA/Megatron-LM/blob/55ac/a/b%20c.py#L3-L5'
    >>> permalink("https://gitlab.com/group/project", "55ac", "a.py", 3, 3)
    'https://gitlab.com/group/project/-/blob/55ac/a.py#L3'
    >>> permalink("https://example.org/x.git", "55ac", "a.py", 3, 3)
    ''
    """
    base = url.removesuffix("/").removesuffix(".git")
    for host, (folder, dash) in _HOSTS.items():
        if base.startswith(host):
            end = f"{dash}{last}" if last != first else ""
            return f"{base}/{folder}/{commit}/{quote(path)}#L{first}{end}"
    return ""
