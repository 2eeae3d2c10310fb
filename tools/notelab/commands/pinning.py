"""`shardbook pin` and `lock`: pin file and lock are written together or not at all."""

from pathlib import Path

import msgspec

from notelab.atomic_write import write_files
from notelab.book.relock import Relocked, path_of, relock
from notelab.book.view import View
from notelab.book.workbook import Bench, Workbook, anew, open_lab, open_labs
from notelab.errors import display_path
from notelab.lab import lock as lock_file
from notelab.lab import pins
from notelab.lab.lab import LAB_FILE
from notelab.lab.release import replace_release, table_at


def pin(folder: Path, source: str, ref: str, bench: Bench) -> list[str]:
    """Resolve `ref`, write pin file, lock and what the lab file calls it; return what was done.

    Raises:
        NotelabError: the ref doesn't exist, or nobody could be asked.
        OSError: a file can't be written. Everything is left as it was, in either case.
    """
    lab = bench.lab(folder)
    place = lab.pins_folder / lab.sources[source].pin
    before = pins.read(source, place)
    commit = bench.library.resolve(lab.source(source, before.commit), ref)
    book = open_lab(lab.pins_folder, bench)
    old, lab_path = lab.sources[source], lab.pins_folder / LAB_FILE
    now = table_at(old, ref, commit)
    lab = msgspec.structs.replace(book.lab, sources={**book.lab.sources, source: now})
    moved = {**book.pins, source: pins.Pin(source, place, commit)}
    made = relock(anew(msgspec.structs.replace(book, lab=lab, pins=moved), bench))
    contents = {place: pins.format_pin(commit).encode()}
    said = lab_path.read_bytes()
    if said != (told := replace_release(said, source, old, now)):
        contents[lab_path] = told
    if made.lock.citations or book.lock is not None:
        contents[path_of(book)] = lock_file.dump(made.lock).encode()
    write_files(contents)
    was = f", was {before.commit[:12]}" if before.commit and before.commit != commit else ""
    lines = [f"{source}: {commit} ({ref}){was}"]
    lines += [f"not locked: `{text}`: {reason}" for text, reason in made.skipped]
    lines += made.remarks
    lines += [f"wrote {display_path(path)}" for path in contents]
    if before.commit != commit:
        lines.append("now read the notes again: `shardbook check` says what no longer fits")
    if old.wheel and not now.wheel:
        lines.append(
            f"{display_path(lab_path)} named {old.wheel}: name the wheel of {ref} if it has one"
        )
    return lines


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
        skipped = skipped or bool(made.skipped or _unread(book))
    return lines, skipped


def _unread(book: Workbook) -> list[View]:
    return [one for one in book.views if one.problem]


def _written(book: Workbook, made: Relocked) -> list[str]:
    path = path_of(book)
    text = lock_file.dump(made.lock)
    count = sum(len(known) for known in made.lock.citations.values())
    files = sum(len(source.files) for source in made.lock.sources.values())
    lines = [f"not locked: {one.filename}, which {one.problem}" for one in _unread(book)]
    lines += [f"not locked: `{text}`: {reason}" for text, reason in made.skipped]
    lines += made.remarks
    said = f"{display_path(path)}: {count} citations of {files} files"
    if path.exists() and path.read_text("utf-8") == text:
        return [*lines, f"{said}, as it was"]
    write_files({path: text.encode()})
    return [*lines, said]
