"""Resolves which file a citation means, in one way for checking, locking, showing and drawing.

A citation that names its source means that source's file. A permalink means the file of the source
whose repository and pin it names. For a bare citation all sources of the lab are asked, and exactly
one of them must have the path. The citation is refused if two have it, or if one has it and another
could not be asked. There is one exception: while the lock was made for exactly these pins, only the
source that it records for the bare citation is asked. What the lock records for a citation with a
source says nothing about a bare one.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, Evidence, State
from notelab.cited import outline
from notelab.cited.outline import Outline
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock, LockedCitation
from notelab.lab.pins import Pin
from notelab.lines import split_lines
from notelab.page.citation import Citation, Span
from notelab.page.note import FileLink
from notelab.page.permalink import normalize_repository
from notelab.sources.answers import WORKTREE, Offered

_MAX_FILES = 2000  # of a working tree that are searched for moved lines
_KEY = re.compile(r":L(\d{1,8})(?:-L(\d{1,8}))?", re.ASCII)
_MANY = 3  # lines whose text alone says that they moved
_Found = tuple[str, int, list[bytes]]  # a file, a row of it, and all its lines
_PRESENT = (State.PROVED, State.POINTER, State.LOCKED)


class Resolution(msgspec.Struct):
    """The result: `file` is the file meant, or None; `candidates` has the path's file per source.

    If `file` is None, then `rivals` lists several files with the path; or `sole` is the only one
    that is known to exist, while the files in `unknown` may exist, too.
    """

    names: list[str]
    candidates: list[CitedFile]
    file: CitedFile | None = None
    rivals: list[CitedFile] = []
    sole: CitedFile | None = None
    unknown: list[CitedFile] = []


class Resolver:
    """Resolves the citations of one lab at its pins."""

    def __init__(
        self, lab: Lab, pins: dict[str, Pin], lock: Lock | None, evidence: Evidence
    ) -> None:
        """Remember the lab; nothing is asked yet."""
        self._pins, self._evidence = pins, evidence
        self._repositories = {name: normalize_repository(lab.sources[name].url) for name in pins}
        self._own = [name for name, table in lab.sources.items() if table.path and name in pins]
        self._recorded_sources = _read_recorded_sources(pins, lock) if lock else {}

    def gather(self, citations: Iterable[Citation]) -> None:
        """Read all files that the citations may mean, in one batch per source."""
        self._evidence.gather(self.list_wanted_files(citations))

    def resolve(self, citation: Citation) -> Resolution:
        """Return the file that a citation means, among the gathered files."""
        names = self._sources(citation)
        files = (self._evidence.file(name, citation.path) for name in names)
        candidates = [file for file in files if file]
        present = [file for file in candidates if file.state in _PRESENT]
        if len(present) > 1:
            return Resolution(names, candidates, rivals=present)
        unknown = [file for file in candidates if file.state is State.UNKNOWN]
        if present and unknown:
            return Resolution(names, candidates, sole=present[0], unknown=unknown)
        return Resolution(names, candidates, present[0] if present else None)

    def of_repository(self, citation: Citation | FileLink) -> list[str]:
        """Return the sources whose repository a permalink leads to."""
        repositories = self._repositories.items()
        names = [name for name, repository in repositories if repository == citation.repository]
        return names or [name for name in self._own if citation.repository in self._own_addresses]

    @cached_property
    def _own_addresses(self) -> set[str]:
        """Return the addresses of the lab's own repository, which are those of its remotes."""
        git = self._evidence.library.clone(self._evidence.source(self._own[0]))
        pattern = r"^remote\..*\.url$"
        urls = git.run("config", "--get-regexp", pattern).text.split() if git else []
        return set(map(normalize_repository, urls[1::2]))

    def list_wanted_files(self, citations: Iterable[Citation]) -> Iterator[tuple[str, str]]:
        """Yield source and path of every file that the citations may mean."""
        for citation in citations:
            is_usable = not citation.problem and citation.form != "maybe"
            if is_usable and citation.first <= citation.last:
                yield from ((name, citation.path) for name in self._sources(citation))

    def _sources(self, citation: Citation) -> list[str]:
        if citation.source:
            return [citation.source] if citation.source in self._pins else []
        if citation.repository:
            names = self.of_repository(citation)
            return [n for n in names if self._pins[n].commit.startswith(citation.commit)][:1]
        recorded = self._recorded_sources.get(citation.path)
        return [recorded] if recorded else list(self._pins)


def _read_recorded_sources(pins: dict[str, Pin], lock: Lock) -> dict[str, str]:
    """Return the source that the lock records for each path of a bare citation.

    If any pin isn't the lock's, the result is empty, because the new commit may have the path, too.
    """
    for name, pin in pins.items():
        if pin.commit and (name not in lock.sources or lock.sources[name].commit != pin.commit):
            return {}
    recorded: dict[str, str] = {}
    twice = set()
    for name, citations in lock.citations.items():
        bare = {key.rpartition(":L")[0] for key in citations if not key.startswith(f"{name}:")}
        twice |= bare & recorded.keys()
        recorded |= dict.fromkeys(bare, name if name in pins and pins[name].commit else "")
    return {path: name for path, name in recorded.items() if path not in twice}


def find_moved_lines(
    evidence: Evidence, file: CitedFile, locked: LockedCitation, first: int, count: int
) -> list[tuple[str, int]]:
    """Return path and first line of each place that has the text locked at `first`, `count` lines.

    If the file lacks it, the other files of a working tree with the same ending are searched.
    Places in the symbol that the lock names come alone; one or two lines elsewhere prove nothing,
    unless that file has most lines of the old one.
    Of several places in the file, one comes alone if the citations around it moved as far.
    """
    rows = _find_rows(file.lines, lambda: file.outline, locked, count)
    if len(rows) > 1:
        moves = _find_unique_moves(evidence, file)
        before = [new - old for old, new in moves if old < first][-1:]
        after = [new - old for old, new in moves if old > first][:1]
        agreed = [first + shift for shift in before if [shift] == after]
        rows = [row for row in rows if row in agreed] or rows
    if rows or evidence.source(file.source).commit != WORKTREE:
        return [(file.path, row) for row in rows]
    places, few = list[_Found](), list[_Found]()
    for name, data in _list_files_with(evidence, file, locked.anchors):
        lines, get_outline = split_lines(data), partial(outline.of_file, name, data)
        for row in _find_rows(lines, get_outline, locked, count):
            (places if locked.symbol or count >= _MANY else few).append((name, row, lines))
    if few:
        old = set(filter(bytes.strip, _read_committed(evidence, file)))
        places += [place for place in few if 2 * len(old.intersection(place[2])) > len(old)]
    return [(name, row) for name, row, _ in places]


def _read_committed(evidence: Evidence, file: CitedFile) -> list[bytes]:
    """Return the lines that a file of a working tree had in the last commit with it."""
    git = evidence.library.clone(evidence.source(file.source))
    last = git.run("log", "-1", "--format=%H", "--", file.path).text if git else ""
    shown = [git.run("show", f"{ref}:{file.path}").out for ref in (last, f"{last}^")] if git else []
    return split_lines(next(filter(None, shown), b""))


def find_moved_symbol(
    evidence: Evidence, file: CitedFile, locked: LockedCitation
) -> list[tuple[Citation, bool]]:
    """Return where a working tree defines the symbol that a file has no longer.

    Each place comes with whether its text is the locked one.
    """
    places = []
    base = locked.symbol.rpartition(".")[2]
    for name, data in _list_files_with(evidence, file, [base]) if base else ():
        lines = split_lines(data)
        for symbol in outline.of_file(name, data).symbols:
            if symbol.name == locked.symbol:
                text = b"\n".join(lines[symbol.top - 1 : symbol.last]) + b"\n"
                place = Citation("", "", name, symbol.top, symbol.last, "", Span(1, 1, 1, 1))
                places.append((place, sha256(text).hexdigest() == locked.sha256))
    return places


def _list_files_with(
    evidence: Evidence, file: CitedFile, words: list[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield path and text of a working tree's files that have some words and `file`'s ending."""
    from notelab.sources.git.files import offer_from_worktree

    source, ending = evidence.source(file.source), Path(file.path).suffix
    names = [name for name in evidence.library.list_names(source) if name.endswith(ending)]
    for name in names[:_MAX_FILES]:
        answer = offer_from_worktree(Path(source.local_repository), {name: None})[name]
        if isinstance(answer, Offered) and all(word.encode() in answer.data for word in words):
            yield name, answer.data


def _find_unique_moves(evidence: Evidence, file: CitedFile) -> list[tuple[int, int]]:
    """Return old and new first line of each locked citation of a file that is at one place now."""
    key = file.source, file.path
    if key not in evidence.moves:
        moves = []
        for name, entry in evidence.lock.citations.get(file.source, {}).items():
            lines = _KEY.fullmatch(name.removeprefix(f"{file.source}:{file.path}"))
            lines = lines or _KEY.fullmatch(name.removeprefix(file.path))
            if lines:
                first, last = int(lines[1]), int(lines[2] or lines[1])
                rows = _find_rows(file.lines, lambda: file.outline, entry, last - first + 1)
                moves += [(first, row) for row in rows if len(rows) == 1]
        evidence.moves[key] = sorted(moves)
    return evidence.moves[key]


def _find_rows(
    lines: list[bytes],
    get_outline: Callable[[], Outline | None],
    locked: LockedCitation,
    count: int,
) -> list[int]:
    windows = (lines[start : start + count] for start in range(len(lines) - count + 1))
    hashes = (sha256(b"\n".join(window) + b"\n").hexdigest() for window in windows)
    rows = [row for row, digest in enumerate(hashes, start=1) if digest == locked.sha256]
    file_outline = get_outline() if rows else None
    if file_outline is None:
        return []
    symbols = {row: file_outline.innermost(row, row + count - 1) for row in rows}
    names = {row: symbol.name if symbol else "" for row, symbol in symbols.items()}
    in_symbol = [row for row in rows if names[row] == locked.symbol]
    return in_symbol or (rows if count >= _MANY else [])
