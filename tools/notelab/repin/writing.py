"""Move the pin and write what was carried: pages, generated ones, their inputs, lab file, locks."""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from notelab.book import view
from notelab.book.relock import path_of, relock
from notelab.book.workbook import Bench, Workbook, anew
from notelab.lab import lock as lock_file
from notelab.lab import pins
from notelab.lab.lab import LAB_FILE
from notelab.lab.lock import Lock, LockedFile, LockedSource
from notelab.lab.release import replace_release
from notelab.page import reading, results_page
from notelab.page.citation import Citation
from notelab.repin.carried import Place, Repin
from notelab.repin.carry import Journey

_FRAGMENT = re.compile(r"#(?:L|lines-)\d+(?:C\d+)?(?:[-:]L?\d+(?:C\d+)?)?\Z")


def going(made: Repin, accepted: Mapping[Place, Place]) -> dict[Place, Place]:
    """Return where each citation that may be written goes.

    One whose new lines would read as another that still waits at the old commit waits with it.
    """
    to = {one.old: one.new for one in made.citations if one.new is not None}
    to |= accepted
    waiting = {one.old for one in made.citations} - to.keys()
    while held := [old for old, new in to.items() if new in waiting]:
        for old in held:
            del to[old]
        waiting |= set(held)
    return to


def contents(journey: Journey, to: Mapping[Place, Place], bench: Bench) -> dict[Path, bytes]:
    """Return every file as it is to be, those alone that change."""
    found: dict[Path, bytes] = {}
    for book in journey.books:
        for one in book.views:
            if one.note is not None:
                found[one.page.path] = _page(one, journey, to, book)
    _generated(found, to)
    lab_path = journey.pin.path.with_name(LAB_FILE)
    old = bench.lab(lab_path.parent).sources[journey.source]
    found[lab_path] = replace_release(lab_path.read_bytes(), journey.source, old, journey.table)
    found[journey.pin.path] = pins.format_pin(journey.commit).encode()
    for book in journey.books:
        if book.lock is not None:
            found[path_of(book)] = _lock(book, found, journey, to, bench)
    return {path: data for path, data in found.items() if path.read_bytes() != data}


def _page(one: view.View, journey: Journey, to: Mapping[Place, Place], book: Workbook) -> bytes:
    assert one.note is not None
    edits: dict[tuple[int, int], tuple[str, str]] = {}
    for citation in one.note.citations:
        new = to.get(Place(citation.path, citation.first, citation.last))
        file = None if citation.problem or new is None else book.resolver.resolve(citation).file
        if new is not None and (file is None or file.source == journey.source):
            at = citation.span
            edits[at.row, at.column] = citation.text, _said(citation, new, journey)
    for row in one.note.front.commits:
        if row.source == journey.source:
            at = row.span
            edits[at.row, at.column] = row.prefix, journey.commit[: len(row.prefix)]
    lines = one.page.path.read_bytes().decode("utf-8").split("\n")
    for (number, column), (old, said) in sorted(edits.items(), reverse=True):
        before, rest = lines[number - 1][: column - 1], lines[number - 1][column - 1 :]
        lines[number - 1] = before + rest.replace(old, said, 1)
    return "\n".join(lines).encode()


def _said(citation: Citation, new: Place, journey: Journey) -> str:
    if citation.relative or (citation.symbol and new.path == citation.path):
        return _FRAGMENT.sub(_fragment(new), citation.text)  # a symbol stays one, moved or not
    if re.fullmatch(r"L?\d.*", citation.text) and new.path == citation.path:
        return str(new).rpartition(":")[2]  # the second range of one code span
    if not citation.repository:
        prefix = f"{citation.source}:" if citation.source else ""
        return prefix + str(new)
    commit = journey.commit[: len(citation.commit)]
    said = citation.text.replace(f"/{citation.tag or citation.commit}/", f"/{commit}/", 1)
    return _FRAGMENT.sub(_fragment(new), said.replace(citation.path, new.path, 1))


def _fragment(new: Place) -> str:
    end = f"-L{new.end}" if new.end != new.start else ""
    return f"#L{new.start}{end}"


def _generated(found: dict[Path, bytes], to: Mapping[Place, Place]) -> None:
    """Carry the inputs of generated pages too, and have each page name its own as they now are."""
    said = {str(old): str(new) for old, new in to.items()}
    pattern = re.compile(r"(?<![\w/])(" + "|".join(map(re.escape, said or ["\0"])) + r")(?![\d-])")

    pages = [path for path in found if results_page.is_generated(found[path].decode())]
    for page in pages:
        for source in results_page.input_files(page):
            if source.suffix == ".toml" and source.is_file():
                text = source.read_bytes().decode("utf-8")
                found[source] = pattern.sub(lambda match: said[match[1]], text).encode()
        found[page] = _sealed(page, found)


def _sealed(page: Path, found: Mapping[Path, bytes]) -> bytes:
    lines = found[page].decode().split("\n")
    for at, line in enumerate(lines):
        made = results_page.INPUT.match(line)
        now = found.get((page.parent / made[1]).resolve()) if made else None
        if made and now is not None:
            lines[at] = line.replace(made[2], sha256(now).hexdigest())
    rest = "\n".join(line for line in lines if not results_page.SEAL.match(line))
    seal = sha256(rest.encode()).hexdigest()
    for at, line in enumerate(lines):
        if said := results_page.SEAL.match(line):
            lines[at] = line.replace(said[1], seal)
    return "\n".join(lines).encode()


def _lock(
    book: Workbook,
    found: Mapping[Path, bytes],
    journey: Journey,
    to: Mapping[Place, Place],
    bench: Bench,
) -> bytes:
    """Lock the pages as they are to be; who waits keeps the commit at which its lines stand."""
    views = []
    for one in book.views:
        data = found.get(one.page.path)
        text = data.decode("utf-8-sig").replace("\r\n", "\n") if data else one.text
        note = reading.read(text) if one.note is not None else None
        views.append(msgspec.structs.replace(one, text=text, note=note))
    sources = {**book.lab.sources, journey.source: journey.table}
    lab = msgspec.structs.replace(book.lab, sources=sources)
    pin = msgspec.structs.replace(journey.pin, commit=journey.commit)
    pinned = {**book.pins, journey.source: pin}
    assert book.lock is not None
    lock = _waiting(book.lock, journey, to)
    made = msgspec.structs.replace(book, lab=lab, views=views, pins=pinned, lock=lock)
    return lock_file.dump(relock(anew(made, bench)).lock).encode()


def _waiting(lock: Lock, journey: Journey, to: Mapping[Place, Place]) -> Lock:
    """Return the lock with the source at its new commit, and only who waits left of it."""
    name, known = journey.source, lock.sources.get(journey.source)
    if known is None:
        return lock
    older: dict[str, dict[str, LockedFile]] = {}
    waiting = {}
    moved = set(map(str, to))
    for key, entry in lock.citations.get(name, {}).items():
        commit, place = entry.commit or known.commit, key.removeprefix(f"{name}:")
        if place in moved or commit == journey.commit:
            continue
        waiting[key] = msgspec.structs.replace(entry, commit=commit)
        files = known.older.get(commit, {}) if entry.commit else known.files
        if (path := place.rpartition(":")[0]) in files:
            older.setdefault(commit, {})[path] = files[path]
    return msgspec.structs.replace(
        lock,
        sources={**lock.sources, name: LockedSource(journey.commit, older=older)},
        citations={**lock.citations, name: waiting},
    )
