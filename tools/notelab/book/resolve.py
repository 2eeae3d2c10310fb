"""Resolves which file a citation means, in one way for checking, locking, showing and drawing.

A citation that names its source means that source's file. A permalink means the file of the source
whose repository and pin it names. For a bare citation all sources of the lab are asked, and exactly
one of them must have the path. The citation is refused if two have it, or if one has it and another
could not be asked. There is one exception: while the lock was made for exactly these pins, only the
source that it records for the bare citation is asked. What the lock records for a citation with a
source says nothing about a bare one.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

import msgspec

from notelab.book.evidence import CitedFile, Evidence, State
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock
from notelab.lab.pins import Pin
from notelab.page.citation import Citation
from notelab.page.note import FileLink
from notelab.sources.git.url import normalize_repository

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
                yield from [(name, citation.path) for name in self._sources(citation)]

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
