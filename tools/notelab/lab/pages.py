"""The pages of a lab: which files are judged, in which language, and by which conditions."""

import os
import posixpath
import stat
from pathlib import Path

import msgspec

from notelab.errors import NotelabError, display_path
from notelab.lab.lab import LAB_FILE, Lab
from notelab.lab.lab_file import ExpectedDiagram, NoteTable

MAX_BYTES = 256 * 1024  # a note has 300 words; a reference page perhaps 5,000
MISSING = "is missing"
_LONE_RETURN = "Markdown begins a line there, git and code hosts don't; end lines by a line feed"
_MOSTLY = 16 * 1024  # to make room for the most takes longer than to read


class Page(msgspec.Struct, frozen=True):
    """One file to judge. `original` is the page it translates, or None for an original."""

    path: Path
    key: str  # its original's path from the lab, as the lock names it
    language: str
    original: Path | None
    table: NoteTable
    diagrams: list[ExpectedDiagram] | None
    listed: bool  # named in lab.toml, so a note with front matter; else found by a glob

    @property
    def family(self) -> Path:
        """Return the original's path, for an original and its translations alike."""
        return self.original or self.path


class Text(msgspec.Struct, frozen=True):
    """A page's text with `\\n` line ends, or the reason why there is none."""

    text: str
    problem: str = ""


def of_lab(lab: Lab) -> list[Page]:
    """Return the lab's pages, originals before their translations, each file once.

    Raises:
        NotelabError: `pages` leaves the repository.
    """
    originals: dict[Path, tuple[str, NoteTable, list[ExpectedDiagram] | None, bool]] = {}
    for name in [*lab.file.notes, *lab.file.diagrams]:
        diagrams = lab.file.diagrams.get(name)
        expected = diagrams.expect if diagrams else None
        table = lab.file.notes.get(name, NoteTable())
        key = posixpath.normpath(name) if "/" in name else name
        originals[lab.places[name]] = (key, table, expected, True)
    for path in _globbed(lab):
        key = Path(os.path.relpath(path, lab.folder)).as_posix()
        originals.setdefault(path, (key, NoteTable(), None, False))
    found = []
    for path, (key, table, expected, listed) in originals.items():
        for language in lab.languages:
            first = language == lab.languages[0]
            place = path if first else translated(path, language)
            original = None if first else path
            found.append(Page(place, key, language, original, table, expected, listed))
    return found


def translated(path: Path, language: str) -> Path:
    """Return where the translation of a page stands: `note.md` → `note.es.md`."""
    return path.with_name(f"{path.stem}.{language}{path.suffix}")


def _globbed(lab: Lab) -> list[Path]:
    found: dict[Path, None] = {}
    endings = tuple(f".{language}.md" for language in lab.languages[1:])
    for glob in lab.file.lab.pages:
        base, pattern = lab.folder, glob
        while pattern.startswith("../"):
            base, pattern = base.parent, pattern[3:]
        if not base.is_relative_to(lab.root) or ".." in pattern.split("/"):
            raise NotelabError(
                f"{display_path(lab.folder / LAB_FILE)}: lab.pages: {glob!r} leaves the repository",
                hint="`../` may only stand at its start, and not climb above the repository",
            )
        for path in _matches(lab, base, pattern, glob):
            inside = path.resolve().is_relative_to(lab.root)
            if path.suffix == ".md" and not path.name.endswith(endings) and inside:
                found.setdefault(path.resolve(), None)
    return list(found)


def _matches(lab: Lab, base: Path, pattern: str, glob: str) -> list[Path]:
    try:
        return sorted(base.glob(pattern))
    except (ValueError, NotImplementedError, OSError) as fault:
        raise NotelabError(
            f"{display_path(lab.folder / LAB_FILE)}: lab.pages: {glob!r} is no glob: {fault}",
            hint="`**` stands for whole folders, as in `theory/**/*.md`",
        ) from None


def read(path: Path) -> Text:
    """Read a page; what is wrong with it is in the answer, never raised."""
    data = b""
    try:
        problem = _no_page(os.lstat(path).st_mode)
        if not problem:
            data = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        problem = MISSING
    except OSError as fault:
        problem = f"cannot be read: {fault.strerror or fault}"
    if problem:
        return Text("", problem)
    if len(data) > MAX_BYTES:
        return Text("", f"is larger than {MAX_BYTES // 1024} KiB; not read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        row = data[: fault.start].count(b"\n") + 1
        return Text("", f"is not UTF-8: byte 0x{data[fault.start]:02x} in line {row}")
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        row = text.partition("\r")[0].count("\n") + 1
        return Text("", f"has a lone carriage return in line {row}: {_LONE_RETURN}")
    if not text.strip():
        return Text("", "is empty")
    return Text(text)


def _no_page(mode: int) -> str:
    # An original's path is resolved, and held inside the repository; a translation's is not.
    if stat.S_ISLNK(mode):
        return "is a symbolic link; not followed"
    return "" if stat.S_ISREG(mode) else "is not a file"


def _read(path: Path) -> bytes:
    """Return what a file holds, up to what is too much; a file object takes twice as long."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        data = b""
        while len(data) <= MAX_BYTES and (more := os.read(handle, _MOSTLY)):
            data += more
        return data
    finally:
        os.close(handle)
