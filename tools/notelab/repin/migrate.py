"""Finds where each citation of a source is at another commit; writes nothing."""

from pathlib import Path

import msgspec

from notelab.book.discovery import labs_below
from notelab.book.evidence import CitedFile, Evidence, State
from notelab.book.workbook import CheckSession, Workbook, is_usable, open_labs
from notelab.errors import NotelabError, display_path
from notelab.lab import pins
from notelab.lab.lab import Lab, repository_root
from notelab.lab.lab_file import SourceTable
from notelab.lab.lock import Lock, LockedSource
from notelab.lab.pins import table_at
from notelab.page.citation import Citation
from notelab.repin.changes import CitationChange, Place, RepinResult
from notelab.repin.classify import classify_change
from notelab.repin.line_map import map_lines
from notelab.repin.moved_lines import MovedLines, OtherFiles
from notelab.repin.version import CitedLines, Version
from notelab.sources.answers import Source, SourceError
from notelab.sources.git.git_command import GitCommand
from notelab.sources.library import Library


class CitedPlace(msgspec.Struct):
    """A place that pages cite: its file, the names that anchor it, and the pages."""

    file: CitedFile
    anchors: set[str] = msgspec.field(default_factory=set)
    pages: dict[str, None] = msgspec.field(default_factory=dict)


class Migration(msgspec.Struct):
    """A source that moves to another commit: the labs that share its pin, and the files of both."""

    source: str
    books: list[Workbook]
    pin: pins.Pin
    commit: str  # the target
    table: SourceTable  # the source's table at the target
    places: dict[Place, CitedPlace]
    old: Evidence  # at the pin; if the pin is the target already, at the first outdated commit
    new: Evidence
    clone: GitCommand | None
    versions: dict[tuple[str, str], Version] = msgspec.field(default_factory=dict)

    def old_version(self, place: Place) -> Version | None:
        """Return the file of a citation at its old commit: the pin, or an older commit."""
        return self._version(self.places[place].file)

    def new_version(self, path: str) -> Version | None:
        """Return a file at the new commit, or None if it has none."""
        if self.new.file(self.source, path) is None:
            self.new.gather([(self.source, path)])
        return self._version(self.new.file(self.source, path))

    def _version(self, file: CitedFile | None) -> Version | None:
        """Return the version of a file, or None if its text is not available."""
        if file is None or file.state is not State.PROVED or file.outline is None:
            return None
        version = Version(file.path, file.blob, file.lines, file.outline)
        return self.versions.setdefault((file.path, file.blob), version)


def open_migration(folder: Path, source: str, ref: str, bench: CheckSession) -> Migration:
    """Open the labs that share the source's pin, and read the cited files at both commits.

    Raises:
        NotelabError: there is no such ref, or no provider could be asked.
    """
    lab = bench.lab(folder)
    table = lab.sources[source]
    pin = pins.read(source, lab.pins_folder / table.pin)
    pins.require_file(pin)
    if not pin.commit:
        raise NotelabError(pin.problem, hint=f"write it with `{pins.format_command(pin)}`")
    commit, new_table = _resolve_target(source, table, pin.commit, ref, bench.library)
    labs = labs_below(repository_root(folder))
    lab_folders = [
        lab_folder for lab_folder in labs if bench.lab(lab_folder).pins_folder == lab.pins_folder
    ]
    books = open_labs(dict.fromkeys(lab_folders), bench)
    outdated = _OutdatedFiles(lab, bench)
    places = _find_cited_places(books, source, outdated)
    pinned = books[0].pins | {source: msgspec.structs.replace(pin, commit=commit)}
    sources = lab.sources | {source: new_table}
    new = Evidence(msgspec.structs.replace(lab, sources=sources), pinned, None, bench)
    paths = dict.fromkeys(place.path for place in places)
    new.gather((source, path) for path in paths)
    clone = bench.library.clone(new.source(source))
    old = next(iter(outdated.evidence.values()), None) if pin.commit == commit else None
    old = old or books[0].evidence
    return Migration(source, books, pin, commit, new_table, places, old, new, clone)


def classify_citations(migration: Migration) -> RepinResult:
    """Return how each distinct citation changed; writes nothing.

    Raises:
        NotelabError: no cited file is at the new commit.
    """
    result = RepinResult(migration.source, migration.pin.commit, migration.commit)
    paths = dict.fromkeys(place.path for place in migration.places)
    read, commits = migration.new_version, (result.old_commit, result.new_commit)
    moved_lines = MovedLines(read, migration.clone, commits)
    other_files = OtherFiles(read, paths, migration.clone, commits, moved_lines)
    versions = {
        place: (
            migration.old_version(place),
            read(place.path) or other_files.find_renamed(place.path),
        )
        for place in migration.places
    }
    if versions and not any(new for _, new in versions.values()):
        files = [migration.new.file(migration.source, path) for path in paths]
        reasons = dict.fromkeys(reason for file in files if file for reason in file.reasons)
        raise NotelabError(
            f"{migration.source}: none of the {len(paths)} cited files could be read at "
            f"{migration.commit[:12]}" + (f": {'; '.join(reasons)}" if reasons else ""),
            hint="check that it is a commit of the same repository; nothing was written",
        )
    line_maps = map_lines({(old, new) for old, new in versions.values() if old and new})
    for place in sorted(versions):
        cited_place, (old, new) = migration.places[place], versions[place]
        if old is not None and place.end <= old.outline.lines:
            cited = CitedLines(old, place.start, place.end, sorted(cited_place.anchors))
            line_map = line_maps[old, new] if new else None
            change = classify_change(cited, new, line_map, other_files.find, moved_lines)
        else:
            change = _classify_by_blob(place, cited_place.file, migration)
        change.pages = list(cited_place.pages)
        result.citations.append(change)
    return result


def _resolve_target(
    name: str, table: SourceTable, pinned_commit: str, ref: str, library: Library
) -> tuple[str, SourceTable]:
    """Return the commit that `ref` names and the source's table there.

    The commit comes from git, else from the wheel of that release.

    Raises:
        NotelabError: there is no such ref, or no provider could be asked.
    """
    wheel_table = table_at(table, ref)
    source = Source(
        name, table.url, pinned_commit, table.release or None, wheel_table.wheel or None
    )
    try:
        commit = library.resolve(source, ref)
        return commit, table_at(table, ref, commit)
    except SourceError as fault:
        if not wheel_table.wheel:
            raise
        try:
            return library.commit_of_wheel(source), wheel_table
        except SourceError as wheel_fault:
            raise NotelabError(
                f"{fault}; {wheel_table.wheel}: {wheel_fault}", hint=fault.hint
            ) from None


class _OutdatedFiles:
    """The files of citations that an earlier repin left at an older commit."""

    def __init__(self, lab: Lab, bench: CheckSession) -> None:
        self._lab, self._bench = lab, bench
        self.evidence: dict[tuple[Path, str], Evidence] = {}

    def file(self, book: Workbook, source: str, citation: Citation) -> CitedFile | None:
        """Return the file of an outdated citation, or None if the citation is at the pin."""
        outdated = book.lock.find_outdated({source: citation.key_in(source)}) if book.lock else None
        if outdated is None or book.lock is None:
            return None
        commit, locked_source = outdated[1].commit, book.lock.sources[source]
        key = book.lab.folder, commit
        if key not in self.evidence:
            pin = msgspec.structs.replace(book.pins[source], commit=commit)
            lock = Lock(sources={source: LockedSource(commit, locked_source.older.get(commit, {}))})
            self.evidence[key] = Evidence(self._lab, {source: pin}, lock, self._bench)
        self.evidence[key].gather([(source, citation.path)])
        return self.evidence[key].file(source, citation.path)


def _find_cited_places(
    books: list[Workbook], source: str, outdated: _OutdatedFiles
) -> dict[Place, CitedPlace]:
    """Return each place of the source that a page or a translation cites."""
    places: dict[Place, CitedPlace] = {}
    for book in books:
        for view in book.views:
            for block in view.note.blocks if view.note else []:
                for citation in filter(is_usable, block.citations):
                    file = outdated.file(book, source, citation)
                    file = file or book.resolver.resolve(citation).file
                    if file is None or file.source != source:
                        continue
                    place = Place(citation.path, citation.first, citation.last)
                    cited_place = places.setdefault(place, CitedPlace(file))
                    cited_place.pages[display_path(view.page.path)] = None
                    if file.outline:
                        names = file.outline.names_between(place.start, place.end)
                        cited_place.anchors |= names & set(block.names)
    return places


def _classify_by_blob(place: Place, file: CitedFile, migration: Migration) -> CitationChange:
    """Classify a citation without its old text: only an unchanged file is the same."""
    reason = "the old text is not available: give a clone that has the old commit"
    new_file = migration.new.file(migration.source, place.path)
    if new_file is None or new_file.state is not State.PROVED:
        return CitationChange(place, "gone", reason=reason)
    if new_file.blob == file.blob:
        return CitationChange(place, "same", place, reason=reason)
    return CitationChange(place, "edited", reason=reason)
