"""Where each citation of a source would stand at another commit: lists; nothing is written."""

from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, Evidence, State
from notelab.book.finding_labs import labs_below
from notelab.book.workbook import Bench, Workbook, open_labs, usable
from notelab.errors import NotelabError, display_path
from notelab.lab import pins
from notelab.lab.lab import Lab, repository_root
from notelab.lab.lab_file import SourceTable
from notelab.lab.lock import Lock, LockedSource
from notelab.lab.release import table_at
from notelab.page.citation import Citation
from notelab.repin.becoming import become
from notelab.repin.carried import Carried, Place, Repin
from notelab.repin.elsewhere import Elsewhere
from notelab.repin.hunks import maps
from notelab.repin.version import Cited, Version
from notelab.sources.answers import Source, SourceError
from notelab.sources.git.command import GitCommand
from notelab.sources.library import Library


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
    commit: str  # that it is carried to, and the source's table there
    table: SourceTable
    uses: dict[Place, Use]
    began: Evidence  # at the pin; if that stands at the target already, where the first waits
    ahead: Evidence
    clone: GitCommand | None
    versions: dict[tuple[str, str], Version] = msgspec.field(default_factory=dict)

    def old(self, place: Place) -> Version | None:
        """Return the file of a citation where that stands: at the pin, or where it waits."""
        return self._version(self.uses[place].file)

    def new(self, path: str) -> Version | None:
        """Return a file at the commit that is carried to, None where it has none."""
        if self.ahead.file(self.source, path) is None:
            self.ahead.gather([(self.source, path)])
        return self._version(self.ahead.file(self.source, path))

    def _version(self, file: CitedFile | None) -> Version | None:
        """Return what is worked out of a file, None where its text is not at hand."""
        if file is None or file.state is not State.PROVED or file.outline is None:
            return None
        made = Version(file.path, file.blob, file.lines, file.outline)
        return self.versions.setdefault((file.path, file.blob), made)


def set_out(folder: Path, source: str, ref: str, bench: Bench) -> Journey:
    """Open the labs that share the source's pin, and read what they cite at both commits.

    Raises:
        NotelabError: there is no such ref, nobody could be asked, or no cited file is there.
    """
    lab = bench.lab(folder)
    table = lab.sources[source]
    pin = pins.read(source, lab.pins_folder / table.pin)
    if not pin.commit:
        raise NotelabError(pin.problem, hint=f"write it with `{pins.format_command(pin)}`")
    commit, moved = _target(source, table, pin.commit, ref, bench.library)
    labs = labs_below(repository_root(folder))
    sharing = [one for one in labs if bench.lab(one).pins_folder == lab.pins_folder]
    books = open_labs(dict.fromkeys(sharing), bench)
    behind = _Behind(lab, bench)
    uses = _uses(books, source, behind)
    pinned = books[0].pins | {source: msgspec.structs.replace(pin, commit=commit)}
    sources = lab.sources | {source: moved}
    ahead = Evidence(msgspec.structs.replace(lab, sources=sources), pinned, None, bench)
    paths = dict.fromkeys(place.path for place in uses)
    ahead.gather((source, path) for path in paths)
    clone = bench.library.clone(ahead.source(source))
    began = next(iter(behind.evidence.values()), None) if pin.commit == commit else None
    began = began or books[0].evidence
    journey = Journey(source, books, pin, commit, moved, uses, began, ahead, clone)
    if paths and not any(map(journey.new, paths)):
        answers = [ahead.file(source, path) for path in paths]
        reasons = dict.fromkeys(reason for one in answers if one for reason in one.reasons)
        raise NotelabError(
            f"{source}: none of the {len(paths)} cited files could be read at {ref} "
            f"({commit[:12]})" + (f": {'; '.join(reasons)}" if reasons else ""),
            hint="is it a commit of the same repository? nothing was written",
        )
    return journey


def carried(journey: Journey) -> Repin:
    """Return what became of each distinct citation of an opened journey; nothing is written."""
    sides = {place: (journey.old(place), journey.new(place.path)) for place in journey.uses}
    through = maps({(old, new) for old, new in sides.values() if old and new})
    made = Repin(journey.source, journey.pin.commit, journey.commit)
    paths = dict.fromkeys(place.path for place in sides)
    elsewhere = Elsewhere(journey.new, paths, journey.clone, (made.old_commit, made.new_commit))
    for place in sorted(sides):
        use, (old, new) = journey.uses[place], sides[place]
        if old is not None and place.end <= old.outline.lines:
            cited = Cited(old, place.start, place.end, sorted(use.anchors))
            one = become(cited, new, through[old, new] if new else None, elsewhere.holding)
        else:
            one = _without_text(place, use.file, journey)
        one.pages = list(use.pages)
        made.citations.append(one)
    return made


def _target(
    name: str, table: SourceTable, pinned: str, ref: str, library: Library
) -> tuple[str, SourceTable]:
    """Return the commit that REF names, of git, else of that release's wheel; the table there.

    Raises:
        NotelabError: there is no such ref, or nobody could be asked.
    """
    made = table_at(table, ref)
    source = Source(name, table.url, pinned, table.release or None, made.wheel or None)
    try:
        found = library.resolve(source, ref)
        return found, table_at(table, ref, found)
    except SourceError as fault:
        if not made.wheel:
            raise
        try:
            return library.commit_of_wheel(source), made
        except SourceError as no:
            raise NotelabError(f"{fault}; {made.wheel}: {no}", hint=fault.hint) from None


class _Behind:
    """The files of citations that an earlier repin left at an older commit."""

    def __init__(self, lab: Lab, bench: Bench) -> None:
        self._lab, self._bench = lab, bench
        self.evidence: dict[tuple[Path, str], Evidence] = {}

    def file(self, book: Workbook, source: str, citation: Citation) -> CitedFile | None:
        """Return the file that a waiting citation stands in; None where it doesn't wait."""
        found = book.lock.find_outdated({source: citation.key_in(source)}) if book.lock else None
        if found is None or book.lock is None:
            return None
        commit, known = found[1].commit, book.lock.sources[source]
        key = book.lab.folder, commit
        if key not in self.evidence:
            pin = msgspec.structs.replace(book.pins[source], commit=commit)
            lock = Lock(sources={source: LockedSource(commit, known.older.get(commit, {}))})
            self.evidence[key] = Evidence(self._lab, {source: pin}, lock, self._bench)
        self.evidence[key].gather([(source, citation.path)])
        return self.evidence[key].file(source, citation.path)


def _uses(books: list[Workbook], source: str, behind: _Behind) -> dict[Place, Use]:
    """Return each place of the source that a page cites, a translation too."""
    found: dict[Place, Use] = {}
    for book in books:
        for view in book.views:
            for cell in view.note.blocks if view.note else []:
                for citation in filter(usable, cell.citations):
                    file = behind.file(book, source, citation)
                    file = file or book.resolver.resolve(citation).file
                    if file is None or file.source != source:
                        continue
                    place = Place(citation.path, citation.first, citation.last)
                    use = found.setdefault(place, Use(file))
                    use.pages[display_path(view.page.path)] = None
                    if file.outline:
                        standing = file.outline.names_between(place.start, place.end)
                        use.anchors |= standing & set(cell.names)
    return found


def _without_text(place: Place, file: CitedFile, journey: Journey) -> Carried:
    """Judge by the blob id alone, where nobody has the old text: an unchanged file is the same."""
    reason = "the old text is not at hand: give a clone that has the old commit"
    after = journey.ahead.file(journey.source, place.path)
    if after is None or after.state is not State.PROVED:
        return Carried(place, "gone", reason=reason)
    if after.blob == file.blob:
        return Carried(place, "same", place, reason=reason)
    return Carried(place, "edited", reason=reason)
