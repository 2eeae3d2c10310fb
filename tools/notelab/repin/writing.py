"""Writes a repin: pin, pages, generated pages and their inputs, lab file and locks, or a report."""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from notelab.book.relock import lock_path, relock
from notelab.book.workbook import CheckSession, Workbook, reload
from notelab.errors import NotelabError, display_path
from notelab.files import write_with_journal
from notelab.lab import lock as lock_file
from notelab.lab import pages, pins
from notelab.lab.lab import LAB_FILE
from notelab.lab.lock import Lock, LockedFile, LockedSource
from notelab.lab.pins import replace_release
from notelab.page import reading, results_page
from notelab.page.candidates import find_candidates, relocate, replace
from notelab.page.citation import Span, group_ranges
from notelab.repin.changes import CitationChange, Place, RepinResult
from notelab.repin.migrate import Migration
from notelab.report.formats import format_json
from notelab.sources.git.git_command import list_uncommitted

_LINES = r"L(\d{1,8})(?:-L(\d{1,8}))?"
_ACCEPTED = re.compile(rf"(.+?):{_LINES}=(?:(.+):)?{_LINES}")
_HEADINGS = {
    "reformatted": "reformatted: the same in another layout",
    "edited": "edited: read each again, beginning with its first proposal",
    "gone": "gone: the lines were not found again",
}


def write_repin(
    migration: Migration,
    outcome: RepinResult,
    session: CheckSession,
    *,
    reformatted: bool,
    accept: Iterable[str],
) -> list[str]:
    """Write the carried and accepted citations, in all files or none, and report what is left.

    `reformatted` accepts all citations of that class; `accept` accepts single ones, as `OLD=NEW`.

    Raises:
        NotelabError: an accepted text is no such citation, the files are in no repository or have
            uncommitted changes, or a file can't be written.
    """
    accepted = _parse_accepted(migration, outcome, accept, reformatted=reformatted)
    to = plan_moves(outcome, accepted, migration.books)
    changed = build_files(migration, to, session)
    root = session.lab(migration.pin.path.parent).root
    dirty = list_uncommitted(root, changed)
    if dirty is None:
        raise NotelabError(
            f"{display_path(root)} is no git repository, so what repin writes could not be undone",
            hint="`git init`, and commit the notes",
        )
    if dirty and migration.pin.commit != migration.commit:
        raise NotelabError(
            f"{len(dirty)} of the files to be written have changes that are not committed: "
            f"{', '.join(dirty[:5])}",
            hint="commit them first, so that you can review and undo what repin writes",
        )
    write_with_journal(root, changed)
    waiting = len(outcome.citations) - len(to)
    lines = [f"wrote {display_path(path)}" for path in sorted(changed)] or ["nothing to write"]
    remark = (
        f"{waiting} stay at the old commit (N217)"
        if waiting
        else "no citation stays at the old commit"
    )
    return [*lines, f"{len(to)} citations carried, {remark}"]


def _parse_accepted(
    migration: Migration, outcome: RepinResult, accept: Iterable[str], *, reformatted: bool
) -> dict[Place, Place]:
    accepted: dict[Place, Place] = {}
    if reformatted:
        kinds = (citation for citation in outcome.citations if citation.kind == "reformatted")
        accepted |= {citation.old: citation.proposals[0] for citation in kinds}
    cited_places = {citation.old for citation in outcome.citations}
    for text in accept:
        pair = _ACCEPTED.fullmatch(text)
        if pair is None:
            raise NotelabError(f"--accept {text}: expected PATH:L1-L9=L3-L11 or …=PATH:L3-L11")
        old = Place(pair[1], int(pair[2]), int(pair[3] or pair[2]))
        new = Place(pair[4] or pair[1], int(pair[5]), int(pair[6] or pair[5]))
        if old not in cited_places:
            raise NotelabError(f"--accept {text}: nothing cites {old}")
        # A written citation leaves the list, so a wrong range would never be seen again.
        version = migration.new_version(new.path)
        if version is None:
            raise NotelabError(f"--accept {text}: {new.path} can't be read at the new commit")
        if not 0 < new.start <= new.end <= version.outline.lines:
            lines = f"lines 1 to {version.outline.lines} of {new.path}"
            raise NotelabError(f"--accept {text}: expected {lines}, the first before the last")
        accepted[old] = new
    return accepted


def as_json(outcome: RepinResult) -> str:
    """Return the lists as one JSON object."""
    return format_json(
        {
            "source": outcome.source,
            "old": outcome.old_commit,
            "new": outcome.new_commit,
            "citations": [
                {
                    "source": outcome.source,
                    **asdict(citation.old),
                    "class": citation.kind,
                    "new": citation.new,
                    "proposals": citation.proposals,
                    "alarm": citation.alarm,
                    "pages": citation.pages,
                }
                for citation in outcome.citations
            ],
            "names": [
                {"name": name.name, name.change: True, "pages": name.pages}
                for name in outcome.names
            ],
        }
    )


def as_text(outcome: RepinResult) -> list[str]:
    """Return the lists for a terminal of 80 columns."""
    kinds = [citation.kind for citation in outcome.citations]
    carried = kinds.count("same") + kinds.count("moved")
    lines = [
        f"{outcome.source}: {outcome.old_commit[:12]} to {outcome.new_commit[:12]}",
        f"  {len(kinds)} distinct citations: {carried} carried "
        f"({kinds.count('same')} same, {kinds.count('moved')} moved)",
    ]
    for kind, heading in _HEADINGS.items():
        of_kind = [citation for citation in outcome.citations if citation.kind == kind]
        if of_kind:
            lines += ["", f"{len(of_kind)} {heading}"]
            lines += [line for citation in of_kind for line in _format_entry(citation)]
    return lines


def _format_entry(citation: CitationChange) -> list[str]:
    lines = [f"  {citation.old}"]
    lines += [f"    {f'in {citation.symbol}'[:76]}"] if citation.symbol else []
    lines += [
        f"    -> {str(to).removeprefix(f'{citation.old.path}:')}" for to in citation.proposals
    ]
    lines += [f"    {citation.reason}"] if citation.reason else []
    return lines


def plan_moves(
    result: RepinResult, accepted: Mapping[Place, Place], books: Iterable[Workbook]
) -> dict[Place, Place]:
    """Return the new place of each citation that may be written.

    A citation waits too if its new text would equal that of a citation that waits at the old
    commit, or if it leaves its file without the other ranges of its path.
    """
    moves = {change.old: change.new for change in result.citations if change.new is not None}
    moves |= accepted
    for group in _list_ranges_by_path(books):
        if len({moves.get(place, place).path for place in group}) > 1:
            for place in group:
                if place in moves and moves[place].path != place.path:
                    del moves[place]
    waiting = {change.old for change in result.citations} - moves.keys()
    while blocked := [old for old, new in moves.items() if new in waiting]:
        for old in blocked:
            del moves[old]
        waiting |= set(blocked)
    return moves


def _list_ranges_by_path(books: Iterable[Workbook]) -> list[list[Place]]:
    """Return the ranges that follow each written path, on all pages."""
    notes = (view.note for book in books for view in book.views if view.note)
    return [
        [Place(each.path, each.first, each.last) for each in group]
        for note in notes
        for block in note.blocks
        for group in group_ranges(block.citations, lambda each: each.form)
    ]


def build_files(
    migration: Migration, moves: Mapping[Place, Place], bench: CheckSession
) -> dict[Path, bytes]:
    """Return the new content of every file that changes."""
    files: dict[Path, bytes] = {}
    for book in migration.books:
        for page_view in book.views:
            if page_view.note is not None:
                files[page_view.page.path] = _rewrite_page(page_view, migration, moves, book)
    _update_generated(files, moves)
    lab_path = migration.pin.path.with_name(LAB_FILE)
    old = bench.lab(lab_path.parent).sources[migration.source]
    files[lab_path] = replace_release(lab_path.read_bytes(), migration.source, old, migration.table)
    files[migration.pin.path] = pins.format_pin(migration.commit).encode()
    for book in migration.books:
        if book.lock is not None:
            files[lock_path(book)] = _rewrite_lock(book, files, migration, moves, bench)
    return {path: data for path, data in files.items() if path.read_bytes() != data}


def _rewrite_page(
    page_view: pages.ParsedPage,
    migration: Migration,
    moves: Mapping[Place, Place],
    book: Workbook,
) -> bytes:
    assert page_view.note is not None
    text = page_view.page.path.read_bytes().decode("utf-8")
    edits: list[tuple[Span, str]] = []
    for candidate in find_candidates(text, page_view.note):
        citation = candidate.citation
        new = moves.get(Place(citation.path, citation.first, citation.last))
        file = None if citation.problem or new is None else book.resolver.resolve(citation).file
        if new is not None and (file is None or file.source == migration.source):
            edits.append(relocate(candidate, new.path, new.start, new.end, migration.commit))
    for row in page_view.note.front.commits:
        if row.source == migration.source:
            span = msgspec.structs.replace(row.span, end_column=row.span.column + len(row.prefix))
            edits.append((span, migration.commit[: len(row.prefix)]))
    return replace(text, edits).encode()


def _update_generated(files: dict[Path, bytes], moves: Mapping[Place, Place]) -> None:
    """Update the inputs of generated pages, and the digests in the pages."""
    replacements = {str(old): str(new) for old, new in moves.items()}
    pattern = re.compile(
        r"(?<![\w/])(" + "|".join(map(re.escape, replacements or ["\0"])) + r")(?![\d-])"
    )

    pages = [path for path in files if results_page.is_generated(files[path].decode())]
    for page in pages:
        for source in results_page.input_files(page):
            if source.suffix == ".toml" and source.is_file():
                text = source.read_bytes().decode("utf-8")
                files[source] = pattern.sub(lambda match: replacements[match[1]], text).encode()
        files[page] = _update_digests(page, files)


def _update_digests(page: Path, files: Mapping[Path, bytes]) -> bytes:
    lines = files[page].decode().split("\n")
    for index, line in enumerate(lines):
        input_match = results_page.INPUT.match(line)
        new_data = files.get((page.parent / input_match[1]).resolve()) if input_match else None
        if input_match and new_data is not None:
            lines[index] = line.replace(input_match[2], sha256(new_data).hexdigest())
    rest = "\n".join(line for line in lines if not results_page.SEAL.match(line))
    seal = sha256(rest.encode()).hexdigest()
    for index, line in enumerate(lines):
        if seal_match := results_page.SEAL.match(line):
            lines[index] = line.replace(seal_match[1], seal)
    return "\n".join(lines).encode()


def _rewrite_lock(
    book: Workbook,
    files: Mapping[Path, bytes],
    migration: Migration,
    moves: Mapping[Place, Place],
    bench: CheckSession,
) -> bytes:
    """Return the lock for the new pages; waiting citations keep the commit of their lines."""
    views = []
    for page_view in book.views:
        data = files.get(page_view.page.path)
        text = data.decode("utf-8-sig").replace("\r\n", "\n") if data else page_view.text
        note = reading.read(text) if page_view.note is not None else None
        views.append(msgspec.structs.replace(page_view, text=text, note=note))
    sources = {**book.lab.sources, migration.source: migration.table}
    lab = msgspec.structs.replace(book.lab, sources=sources)
    pin = msgspec.structs.replace(migration.pin, commit=migration.commit)
    pinned = {**book.pins, migration.source: pin}
    assert book.lock is not None
    lock = _keep_waiting(book.lock, migration, moves)
    updated = msgspec.structs.replace(book, lab=lab, views=views, pins=pinned, lock=lock)
    return lock_file.dump(relock(reload(updated, bench)).lock).encode()


def _keep_waiting(lock: Lock, migration: Migration, moves: Mapping[Place, Place]) -> Lock:
    """Return the lock with the source at its new commit and only the waiting citations."""
    name, locked_source = migration.source, lock.sources.get(migration.source)
    if locked_source is None:
        return lock
    older: dict[str, dict[str, LockedFile]] = {}
    waiting = {}
    moved = set(map(str, moves))
    for key, entry in lock.citations.get(name, {}).items():
        commit, place = entry.commit or locked_source.commit, key.removeprefix(f"{name}:")
        if place in moved or commit == migration.commit:
            continue
        waiting[key] = msgspec.structs.replace(entry, commit=commit)
        files = locked_source.older.get(commit, {}) if entry.commit else locked_source.files
        if (path := place.rpartition(":")[0]) in files:
            older.setdefault(commit, {})[path] = files[path]
    return msgspec.structs.replace(
        lock,
        sources={**lock.sources, name: LockedSource(migration.commit, older=older)},
        citations={**lock.citations, name: waiting},
    )
