"""Builds the files of a repin: pin, pages, generated pages and their inputs, lab file and locks."""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from notelab.book import parsed_page
from notelab.book.relock import lock_path, relock
from notelab.book.workbook import CheckSession, Workbook, reload
from notelab.lab import lock as lock_file
from notelab.lab import pins
from notelab.lab.lab import LAB_FILE
from notelab.lab.lock import Lock, LockedFile, LockedSource
from notelab.lab.pins import replace_release
from notelab.page import reading, results_page
from notelab.page.candidates import find_candidates, relocate, replace
from notelab.page.citation import Span, group_ranges
from notelab.repin.changes import Place, RepinResult
from notelab.repin.migrate import Migration


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
    page_view: parsed_page.ParsedPage,
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
