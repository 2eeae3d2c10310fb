"""Carry every citation of a source to another commit: the lists that `shardbook repin` shows."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, Evidence, State
from notelab.book.finding_labs import labs_below
from notelab.book.workbook import Bench, Workbook, evidence_at, open_labs
from notelab.cited.outline import Outline, is_anchor
from notelab.errors import NotelabError, shown
from notelab.lab import pins
from notelab.lab.lab import Lab, repository_root
from notelab.lab.lab_file import SourceTable
from notelab.lab.lock import Lock, LockedSource
from notelab.lab.release import table_at
from notelab.page.citation import Citation
from notelab.repin.becoming import Became, become
from notelab.repin.carried import Carried, Place, Repin
from notelab.repin.elsewhere import Elsewhere
from notelab.repin.hunks import Map, maps
from notelab.repin.version import Cited, Version
from notelab.sources.answers import Source, SourceError
from notelab.sources.git.command import GitCommand
from notelab.sources.library import Library


class Target(msgspec.Struct, frozen=True):
    """A commit, and the source's table once it is pinned there."""

    commit: str
    table: SourceTable


class Use(msgspec.Struct):
    """A place that pages cite: the names that anchor it there, and the pages."""

    file: CitedFile
    anchors: set[str] = msgspec.field(default_factory=set)
    pages: dict[str, None] = msgspec.field(default_factory=dict)


class Journey(msgspec.Struct):
    """A source on its way: the labs that share its pin, and both commits' files."""

    source: str
    books: list[Workbook]
    pin: pins.Pin
    target: Target
    uses: dict[Place, Use]
    began: Evidence  # at the pin; if that stands at the target already, where the first waits
    ahead: Evidence
    clone: GitCommand | None

    def old(self, place: Place) -> Version | None:
        """Return the file of a citation where that stands: at the pin, or where it waits."""
        use = self.uses.get(place)
        return _version(use.file) if use else None

    def new(self, path: str) -> Version | None:
        """Return a file at the commit that is carried to, None where it has none."""
        if self.ahead.file(self.source, path) is None:
            self.ahead.gather([(self.source, path)])
        return _version(self.ahead.file(self.source, path))


def set_out(folder: Path, source: str, ref: str, bench: Bench) -> Journey:
    """Open the labs that share the source's pin, and read what they cite at both commits.

    Raises:
        NotelabError: there is no such ref, nobody could be asked, or no cited file is there.
    """
    lab = bench.lab(folder)
    table = lab.sources[source]
    pin = pins.read(source, lab.pins_folder / table.pin)
    if not pin.commit:
        raise NotelabError(pin.problem, hint=f"write it with `{pins.command_for(pin)}`")
    target = _target(source, table, pin.commit, ref, bench.library)
    labs = labs_below(repository_root(folder))
    sharing = [one for one in labs if bench.lab(one).pins_folder == lab.pins_folder]
    books = open_labs(dict.fromkeys(sharing), bench)
    behind = _Behind(lab, bench)
    uses = _uses(books, source, behind)
    sources = {**lab.sources, source: target.table}
    pinned = {name: pins.read(name, lab.pins_folder / one.pin) for name, one in sources.items()}
    pinned[source] = msgspec.structs.replace(pin, commit=target.commit)
    ahead = evidence_at(pinned, msgspec.structs.replace(lab, sources=sources), None, bench)
    paths = dict.fromkeys(place.path for place in uses)
    ahead.gather((source, path) for path in paths)
    clone = bench.library.clone(ahead.source(source))
    began = behind.first if pin.commit == target.commit else None
    began = began or books[0].evidence
    journey = Journey(source, books, pin, target, uses, began, ahead, clone)
    _refuse_strangers(journey, list(paths), ref)
    return journey


def carried(journey: Journey) -> Repin:
    """Return what became of each distinct citation of an opened journey; nothing is written."""
    files = {(use.file.path, use.file.blob): use.file for use in journey.uses.values()}
    old = {key: _version(file) for key, file in files.items()}
    new = {path: journey.new(path) for path, _ in files}
    through = _maps(old, new)
    made = Repin(journey.source, journey.pin.commit, journey.target.commit)
    elsewhere = Elsewhere(journey.new, new, journey.clone, (made.old_commit, made.new_commit))
    for place, use in sorted(
        journey.uses.items(), key=lambda each: msgspec.structs.astuple(each[0])
    ):
        key = place.path, use.file.blob
        before = old[key]
        one = Carried(journey.source, place, "edited", pages=list(use.pages))
        one.anchors = sorted(use.anchors)
        if before is not None and place.end <= before.outline.lines:
            cited = Cited(before, place.start, place.end, one.anchors)
            one.symbol = cited.symbol
            became = become(cited, new[place.path], through.get(key), elsewhere.holding)
        else:
            became = _without_text(place, use.file, journey)
            one.reason = "the old text is not at hand: give a clone that has the old commit"
        one.kind, one.new, one.proposals = became.kind, became.new, became.proposals
        made.citations.append(one)
    return made


def _target(name: str, table: SourceTable, commit: str, ref: str, library: Library) -> Target:
    """Return the commit that REF names: asked of git, else of the wheel of that release.

    Raises:
        NotelabError: there is no such ref, or nobody could be asked.
    """
    made = table_at(table, ref)
    source = Source(name, table.url, commit, table.release or None, made.wheel or None)
    try:
        found = library.resolve(source, ref)
        return Target(found, table_at(table, ref, found))
    except SourceError as fault:
        if made.wheel:
            try:
                return Target(library.commit_of_wheel(source), made)
            except SourceError as no:
                raise NotelabError(f"{fault}; {made.wheel}: {no}", hint=fault.hint) from None
        raise


class _Behind:
    """The files of citations that an earlier repin left at an older commit."""

    def __init__(self, lab: Lab, bench: Bench) -> None:
        self._lab, self._bench = lab, bench
        self._evidence: dict[tuple[Path, str], Evidence] = {}

    @property
    def first(self) -> Evidence | None:
        """Return what was asked of the commit at which the first citation waits, if any does."""
        return next(iter(self._evidence.values()), None)

    def file(self, book: Workbook, source: str, citation: Citation) -> CitedFile | None:
        """Return the file that a waiting citation stands in; None where it doesn't wait."""
        found = book.lock.behind({source: citation.key_in(source)}) if book.lock else None
        if found is None or book.lock is None:
            return None
        commit, known = found[1].commit, book.lock.sources[source]
        key = book.lab.folder, commit
        if key not in self._evidence:
            pin = msgspec.structs.replace(book.pins[source], commit=commit)
            lock = Lock(sources={source: LockedSource(commit, known.older.get(commit, {}))})
            self._evidence[key] = evidence_at({source: pin}, self._lab, lock, self._bench)
        self._evidence[key].gather([(source, citation.path)])
        return self._evidence[key].file(source, citation.path)


def _uses(books: list[Workbook], source: str, behind: _Behind) -> dict[Place, Use]:
    """Return each place of the source that a page cites, a translation too."""
    found: dict[Place, Use] = {}
    for book in books:
        for view in book.views:
            for cell in view.note.cells if view.note else []:
                for citation in cell.citations:
                    if citation.problem:
                        continue
                    file = behind.file(book, source, citation)
                    file = file or book.resolver.resolve(citation).file
                    if file is None or file.source != source or citation.last < citation.first:
                        continue
                    place = Place(citation.path, citation.first, citation.last)
                    use = found.setdefault(place, Use(file))
                    use.pages[shown(view.page.path)] = None
                    use.anchors |= _anchors(file, place, cell.names)
    return found


def _anchors(file: CitedFile, place: Place, names: Iterable[str]) -> set[str]:
    if file.outline is None:
        return set()
    standing = file.outline.names_between(place.start, place.end)
    return {name for name in names if is_anchor(name) and name in standing}


def _version(file: CitedFile | None) -> Version | None:
    if file is None or file.state is not State.PROVED or file.outline is None:
        return None
    outline: Outline = file.outline
    return Version(file.path, file.blob, file.lines, outline)


_Key = tuple[str, str]  # a path and its blob: who waits may stand in an older one


def _maps(old: dict[_Key, Version | None], new: dict[str, Version | None]) -> dict[_Key, Map]:
    through: dict[_Key, Map] = {}
    changed: dict[_Key, tuple[bytes, bytes]] = {}
    for key, before in old.items():
        after = new[key[0]]
        if before is None or after is None:
            continue
        if before.blob == after.blob:
            through[key] = Map()
        else:
            changed[key] = _text(before), _text(after)
    return through | dict(zip(changed, maps(list(changed.values())), strict=True))


def _text(version: Version) -> bytes:
    return b"\n".join(version.raw) + b"\n"


def _without_text(place: Place, file: CitedFile, journey: Journey) -> Became:
    """Judge by the blob id alone, where nobody has the old text: an unchanged file is the same."""
    after = journey.ahead.file(journey.source, place.path)
    if after is None or after.state is not State.PROVED:
        return Became("gone")
    return Became("same", place) if after.blob == file.blob else Became("edited")


def _refuse_strangers(journey: Journey, paths: list[str], ref: str) -> None:
    there = [path for path in paths if journey.new(path) is not None]
    if there or not paths:
        return
    answers = [journey.ahead.file(journey.source, path) for path in paths]
    reasons = dict.fromkeys(reason for one in answers if one for reason in one.reasons)
    raise NotelabError(
        f"{journey.source}: none of the {len(paths)} cited files could be read at {ref} "
        f"({journey.target.commit[:12]})" + (f": {'; '.join(reasons)}" if reasons else ""),
        hint="is it a commit of the same repository? nothing was written",
    )
