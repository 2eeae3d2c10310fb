"""`shardbook pin` and `lock`: they write pin file and lock together, or neither."""

from pathlib import Path

import msgspec

from notelab.book.relock import RelockResult, lock_path, relock
from notelab.book.workbook import CheckSession, Workbook, open_lab, open_labs, reload
from notelab.errors import display_path
from notelab.files import write_files
from notelab.lab import lock as lock_file
from notelab.lab import pins
from notelab.lab.lab import LAB_FILE
from notelab.lab.pages import ParsedPage
from notelab.lab.pins import replace_release, table_at
from notelab.report.terminal import format_count


def pin(folder: Path, source: str, ref: str, session: CheckSession) -> list[str]:
    """Resolve `ref`, write pin file, lock and the names in the lab file; return what was done.

    On an error all files are left as they were.

    Raises:
        NotelabError: the ref doesn't exist, or no repository could be asked.
        OSError: a file can't be written.
    """
    lab = session.lab(folder)
    place = lab.pins_folder / lab.sources[source].pin
    before = pins.read(source, place)
    pins.require_file(before)
    commit = session.library.resolve(lab.source(source, before.commit), ref)
    book = open_lab(lab.pins_folder, session)
    old, lab_path = lab.sources[source], lab.pins_folder / LAB_FILE
    now = table_at(old, ref, commit)
    lab = msgspec.structs.replace(book.lab, sources={**book.lab.sources, source: now})
    moved = {**book.pins, source: pins.Pin(source, place, commit)}
    relocked = relock(reload(msgspec.structs.replace(book, lab=lab, pins=moved), session))
    contents = {place: pins.format_pin(commit).encode()}
    old_lab_file = lab_path.read_bytes()
    if old_lab_file != (new_lab_file := replace_release(old_lab_file, source, old, now)):
        contents[lab_path] = new_lab_file
    if relocked.lock.citations or book.lock is not None:
        contents[lock_path(book)] = lock_file.dump(relocked.lock).encode()
    write_files(contents)
    before_text = f", was {before.commit[:12]}" if before.commit and before.commit != commit else ""
    lines = [f"{source}: {commit} ({ref}){before_text}"]
    lines += [f"not locked: `{text}`: {reason}" for text, reason in relocked.skipped]
    lines += relocked.remarks
    lines += [f"wrote {display_path(path)}" for path in contents]
    if before.commit != commit:
        lines.append("next: read the notes again; `shardbook check` says what no longer fits")
    if old.wheel and not now.wheel:
        lines.append(
            f"{display_path(lab_path)} named {old.wheel}; write the wheel of {ref} if there is one"
        )
    return lines


def lock(folders: list[Path], session: CheckSession) -> tuple[list[str], bool]:
    """Write the labs' locks again; return what was done, and whether a citation was left out.

    Raises:
        NotelabError: a lab.toml or an old lock can't be read.
        OSError: a new lock can't be written.
    """
    lines: list[str] = []
    skipped = False
    for book in open_labs(dict.fromkeys(folders), session):
        relocked = relock(book)
        lines += describe_lock(book, relocked)
        path, text = lock_path(book), lock_file.dump(relocked.lock)
        if path.exists() and path.read_text("utf-8") == text:
            lines[-1] += ", unchanged"
        else:
            write_files({path: text.encode()})
        skipped = skipped or bool(relocked.skipped or _unread_pages(book))
    return lines, skipped


def _unread_pages(book: Workbook) -> list[ParsedPage]:
    return [view for view in book.views if view.problem]


def describe_lock(book: Workbook, relocked: RelockResult) -> list[str]:
    """Return what a new lock leaves out, what it replaced, and how many citations it has."""
    count = sum(len(entries) for entries in relocked.lock.citations.values())
    files = sum(len(source.files) for source in relocked.lock.sources.values())
    lines = [f"not locked: {view.filename}, which {view.problem}" for view in _unread_pages(book)]
    lines += [f"not locked: `{text}`: {reason}" for text, reason in relocked.skipped]
    lines += relocked.remarks
    cited = f"{format_count(count, 'citation')} of {format_count(files, 'file')}"
    return [*lines, f"{display_path(lock_path(book))}: {cited}"]
