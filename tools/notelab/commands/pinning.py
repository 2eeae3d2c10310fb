"""`shardbook pin` and `lock`: pin file and lock are written together or not at all."""

from pathlib import Path

import msgspec

from notelab.book.relock import Relocked, path_of, relock
from notelab.book.resolve import Resolver
from notelab.book.workbook import Bench, Workbook, evidence_at, open_lab, open_labs
from notelab.errors import shown
from notelab.lab import lock as lock_file
from notelab.lab import pins
from notelab.lab.lab import LAB_FILE, Lab
from notelab.lab.lock import Lock
from notelab.whole_files import write_together


def pin(folder: Path, source: str, ref: str, bench: Bench) -> list[str]:
    """Resolve `ref`, write the pin file and the lock, and return what was done.

    Raises:
        NotelabError: the ref doesn't exist, or nobody could be asked.
        OSError: a file can't be written. Everything is left as it was, in either case.
    """
    lab = bench.lab(folder)
    place = lab.pins_folder / lab.sources[source].pin
    before = pins.read(source, place)
    commit = bench.library.resolve(lab.source(source, before.commit), ref)
    book = open_lab(lab.pins_folder, bench)
    moved = {**book.pins, source: pins.Pin(source, place, commit)}
    evidence = evidence_at(moved, lab, book.lock, bench)
    resolver = Resolver(lab, moved, book.lock or Lock(), evidence)
    resolver.gather(
        citation for view in book.views if view.note for citation in view.note.citations
    )
    made = relock(msgspec.structs.replace(book, pins=moved, evidence=evidence, resolver=resolver))
    lock_path = path_of(book)
    contents = {place: pins.text_of(commit)}
    if made.lock.citations or book.lock is not None:
        contents[lock_path] = lock_file.dump(made.lock)
    write_together({path: text.encode() for path, text in contents.items()})
    was = f", was {before.commit[:12]}" if before.commit and before.commit != commit else ""
    lines = [f"{source}: {commit} ({ref}){was}"]
    lines += [f"not locked: `{text}`: {reason}" for text, reason in made.skipped]
    lines += made.remarks
    lines += [f"wrote {shown(path)}" for path in contents]
    if before.commit != commit:
        lines.append("now read the notes again: `shardbook check` says what no longer fits")
    return [*lines, *(_left_behind(lab, source, ref) if was else [])]


def _left_behind(lab: Lab, source: str, ref: str) -> list[str]:
    """Say which release and wheel the lab file still names, of which only its author knows."""
    table = lab.sources[source]
    named = [one for one in (table.release, table.wheel) if one and table.release != ref]
    file = shown(lab.pins_folder / LAB_FILE)
    return [f"{file} still names {' and '.join(named)}: write what {ref} has"] if named else []


def lock(folders: list[Path], bench: Bench) -> tuple[list[str], bool]:
    """Write the labs' locks anew; return what was done, and whether some citation was left out.

    Raises:
        NotelabError: a lab.toml or an old lock can't be read.
        OSError: a new one can't be written.
    """
    lines: list[str] = []
    skipped = False
    for book in open_labs(dict.fromkeys(folders), bench):
        made = relock(book)
        lines += _written(book, made)
        skipped = skipped or bool(made.skipped)
    return lines, skipped


def _written(book: Workbook, made: Relocked) -> list[str]:
    path = path_of(book)
    text = lock_file.dump(made.lock)
    count = sum(len(known) for known in made.lock.citations.values())
    files = sum(len(source.files) for source in made.lock.sources.values())
    lines = [f"not locked: `{text}`: {reason}" for text, reason in made.skipped]
    lines += made.remarks
    said = f"{shown(path)}: {count} citations of {files} files"
    if path.exists() and path.read_text("utf-8") == text:
        return [*lines, f"{said}, as it was"]
    write_together({path: text.encode()})
    return [*lines, said]
