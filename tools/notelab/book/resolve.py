"""Which file does a citation mean? The one answer, for whoever checks, locks, shows or draws it.

A citation that names its source means that source's file, and a permalink that of the source whose
repository and pin it names. A bare one means the file of the one
source that has the path: all of the lab's sources are asked, and two that have it are refused, as
is one that has it beside another that could not be asked. Only while the lock was made for exactly
these pins is the source that it recorded for the bare citation asked alone; what the lock knows of
a citation written with a source tells nothing about a bare one.
"""

from collections.abc import Iterable, Iterator

import msgspec

from notelab.book.evidence import CitedFile, Evidence, State
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock
from notelab.lab.pins import Pin
from notelab.page.citation import Citation
from notelab.page.note import FileLink
from notelab.page.permalink import normalize_repository

_PRESENT = (State.PROVED, State.POINTER, State.LOCKED)


class Resolved(msgspec.Struct):
    """`file` is the one meant, or None; `asked` is what is known of each source that may have it.

    Where `file` is None, `rivals` are two or more that have the path; or `sole` is the only one
    that is known to have it, while `unasked` may have it too.
    """

    names: list[str]
    asked: list[CitedFile]
    file: CitedFile | None = None
    rivals: list[CitedFile] = []
    sole: CitedFile | None = None
    unasked: list[CitedFile] = []


class Resolver:
    """Answers for the citations of one lab at its pins."""

    def __init__(
        self, lab: Lab, pins: dict[str, Pin], lock: Lock | None, evidence: Evidence
    ) -> None:
        """Ask nobody yet."""
        self._pins, self._evidence = pins, evidence
        self._repositories = {name: normalize_repository(lab.sources[name].url) for name in pins}
        self._recorded = _recorded(pins, lock) if lock else {}

    def gather(self, citations: Iterable[Citation]) -> None:
        """Read every file that the citations may mean, in one batch per source."""
        self._evidence.gather(self.wanted(citations))

    def resolve(self, citation: Citation) -> Resolved:
        """Return the file that a citation means, of what was gathered."""
        names = self._sources(citation)
        found = (self._evidence.file(name, citation.path) for name in names)
        asked = [file for file in found if file]
        there = [file for file in asked if file.state in _PRESENT]
        if len(there) > 1:
            return Resolved(names, asked, rivals=there)
        unasked = [file for file in asked if file.state is State.UNKNOWN]
        if there and unasked:
            return Resolved(names, asked, sole=there[0], unasked=unasked)
        return Resolved(names, asked, there[0] if there else None)

    def of_repository(self, citation: Citation | FileLink) -> list[str]:
        """Return the sources whose repository a permalink is of."""
        known = self._repositories.items()
        return [name for name, repository in known if repository == citation.repository]

    def wanted(self, citations: Iterable[Citation]) -> Iterator[tuple[str, str]]:
        """Return the source and path of every file that the citations may mean."""
        seen: set[tuple[str, ...]] = set()  # thousands of citations are of some ten files
        for one in citations:
            said = one.source, one.repository, one.commit, one.path
            if not one.problem and one.first <= one.last and said not in seen:
                seen.add(said)
                yield from ((name, one.path) for name in self._sources(one))

    def _sources(self, citation: Citation) -> list[str]:
        if citation.source:
            return [citation.source] if citation.source in self._pins else []
        if citation.repository:
            names = self.of_repository(citation)
            return [n for n in names if self._pins[n].commit.startswith(citation.commit)][:1]
        known = self._recorded.get(citation.path)
        return [known] if known else list(self._pins)


def _recorded(pins: dict[str, Pin], lock: Lock) -> dict[str, str]:
    """Return the source that the lock recorded for each path cited bare, where it still holds.

    A pin that the lock doesn't know may be of a commit that gained the path, so then none holds.
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
