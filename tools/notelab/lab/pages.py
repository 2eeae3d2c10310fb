"""The pages of a lab: which files are checked, in which language, with which limits, and parsed."""

import os
import posixpath
import stat
from codecs import BOM_UTF8
from pathlib import Path

import msgspec

from notelab.cache import CacheFile, cache_key, get_or_compute
from notelab.errors import NotelabError, display_path
from notelab.files import kind_of, read_regular
from notelab.finding import Finding
from notelab.lab.lab import LAB_FILE, Lab
from notelab.lab.lab_file import ExpectedDiagram, NoteTable
from notelab.page.citation import Span
from notelab.page.note import Note

MAX_BYTES = 256 * 1024  # a note has 300 words; a reference page perhaps 5,000
MISSING = "is missing"
_OUTSIDE = "is reached by a symbolic link that leads out of the repository; not followed"
_LINE_END_ADVICE = (
    "Markdown begins a line there, git and code hosts don't; end lines with a line feed"
)
_NO_NAME = "has a name that is not UTF-8; neither a lock nor a report can hold it"


class Page(msgspec.Struct, frozen=True):
    """A file to check; `original` is the page that it translates, or None for an original."""

    path: Path
    key: str  # the original's path from the lab, which is its name in the lock
    language: str
    original: Path | None
    table: NoteTable
    diagrams: list[ExpectedDiagram] | None
    listed: bool  # named in lab.toml, so a note with front matter; else found by a glob
    problem: str = ""  # why its path is not followed

    @property
    def family(self) -> Path:
        """Return the path of the original, for an original and for its translations."""
        return self.original or self.path


class Text(msgspec.Struct, frozen=True):
    """A page's text with `\\n` line ends, or the reason why there is none."""

    text: str
    problem: str = ""


def list_pages(lab: Lab) -> list[Page]:
    """Return the lab's pages, each file once, originals before their translations.

    Raises:
        NotelabError: a glob of `pages` is invalid or leaves the repository.
    """
    originals: dict[Path, tuple[str, NoteTable, list[ExpectedDiagram] | None, bool]] = {}
    for name in [*lab.file.notes, *lab.file.diagrams]:
        diagrams = lab.file.diagrams.get(name)
        expected = diagrams.expect if diagrams else None
        table = lab.file.notes.get(name, NoteTable())
        key = posixpath.normpath(name) if "/" in name else name
        originals[lab.page_paths[name]] = (key, table, expected, True)
    inside, unread = _expand_globs(lab, "pages", lab.file.lab.pages)
    for path in inside:
        originals.setdefault(path, (_page_key(lab, path), NoteTable(), None, False))
    first = lab.languages[0]
    pages = [
        Page(
            path, _page_key(lab, path), first, None, NoteTable(), None,
            listed=False, problem=problem,
        )
        for path, problem in unread.items()
    ]  # fmt: skip
    for path, (key, table, expected, listed) in originals.items():
        for language in lab.languages:
            page_path = path if language == first else translation_path(path, language)
            original = None if language == first else path
            pages.append(Page(page_path, key, language, original, table, expected, listed))
    return pages


def list_earlier_pages(lab: Lab) -> list[Page]:
    """Return the pages of `before`, which only tell the lines that readers have seen cited.

    Raises:
        NotelabError: a glob of `before` is invalid or leaves the repository.
    """
    inside, _ = _expand_globs(lab, "before", lab.file.lab.before)
    return [
        Page(path, _page_key(lab, path), "", None, NoteTable(), None, listed=False)
        for path in inside
    ]


def translation_path(path: Path, language: str) -> Path:
    """Return the path of a page's translation: `note.md` → `note.es.md`."""
    return path.with_name(f"{path.stem}.{language}{path.suffix}")


def _page_key(lab: Lab, path: Path) -> str:
    return Path(os.path.relpath(path, lab.folder)).as_posix()


def _is_utf8(name: str) -> bool:
    return name.isascii() or os.fsencode(name).decode("utf-8", "replace") == name


def _expand_globs(lab: Lab, key: str, globs: list[str]) -> tuple[list[Path], dict[Path, str]]:
    """Return the pages that a key's globs match, and the problem of each that is not read."""
    inside: dict[Path, None] = {}
    unread: dict[Path, str] = {}
    endings = tuple(f".{language}.md" for language in lab.languages[1:])
    for glob in globs:
        base, pattern = split_glob(lab.folder, glob)
        if not base.is_relative_to(lab.root) or ".." in pattern.split("/"):
            raise NotelabError(
                f"{display_path(lab.folder / LAB_FILE)}: lab.{key}: {glob!r} leaves the repository",
                hint="write `../` only at the start; it must not lead out of the repository",
            )
        for path in _glob(lab, base, pattern, f"lab.{key}: {glob!r}"):
            if path.suffix != ".md" or path.name.endswith(endings):
                continue
            resolved = path.resolve()
            if not resolved.is_relative_to(lab.root):
                unread[path] = _OUTSIDE
            elif not _is_utf8(_page_key(lab, resolved)):
                unread[path] = _NO_NAME
            else:
                inside.setdefault(resolved, None)
    return list(inside), unread


def split_glob(folder: Path, glob: str) -> tuple[Path, str]:
    """Return the folder that a glob starts from, and the glob without the `../` at its start."""
    while glob.startswith("../"):
        folder, glob = folder.parent, glob[3:]
    return folder, glob


def _glob(lab: Lab, base: Path, pattern: str, place: str) -> list[Path]:
    try:
        return sorted(base.glob(pattern))
    except (ValueError, NotImplementedError, OSError) as fault:
        raise NotelabError(
            f"{display_path(lab.folder / LAB_FILE)}: {place} is no glob: {fault}",
            hint="`**` matches whole folders, as in `theory/**/*.md`",
        ) from None


def read(path: Path) -> Text:
    """Read a page; problems are in the result, and no error is raised."""
    try:
        mode = os.lstat(path).st_mode
        if problem := _why_not_readable(mode):
            return Text("", problem)
        return decode(read_regular(path, MAX_BYTES + 1, mode=mode))
    except (FileNotFoundError, NotADirectoryError):
        return Text("", MISSING)
    except OSError as fault:
        return Text("", f"cannot be read: {fault.strerror or fault}")


def decode(data: bytes) -> Text:
    """Return the text of a page's bytes; problems are in the result."""
    if len(data) > MAX_BYTES:
        return Text("", f"is larger than {MAX_BYTES // 1024} KiB; not read")
    try:
        text = data.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as fault:
        row = data[: fault.start].count(b"\n") + 1
        return Text("", f"is not UTF-8: byte 0x{data[fault.start]:02x} in line {row}")
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        row = text.partition("\r")[0].count("\n") + 1
        return Text("", f"has a lone carriage return in line {row}: {_LINE_END_ADVICE}")
    if not text.strip():
        return Text("", "is empty")
    return Text(text)


def _why_not_readable(mode: int) -> str:
    # An original's path is resolved and checked to be in the repository; a translation's is not.
    if stat.S_ISLNK(mode):
        return "is a symbolic link; not followed"
    kind = kind_of(mode)
    return f"is a {kind}, not a file" if kind else ""


class ParsedPage(msgspec.Struct):
    """A page that was read; `note` is None if that failed, and then `problem` says why."""

    page: Page
    filename: str
    text: str
    problem: str
    note: Note | None
    digest: str = ""  # of the text, as a key of cached results

    @property
    def exists(self) -> bool:
        """Tell whether the file exists."""
        return self.note is not None or self.problem != ""

    def finding(self, code: str, span: Span, message: str, **details: str) -> Finding:
        """Return a finding on this page; `details` are its `expected`, `found` and `help`."""
        return Finding(code, self.filename, span, message, **details)


def parse(page: Page, cache: CacheFile) -> ParsedPage:
    """Read and parse a page; a missing page has neither note nor problem."""
    page_text = Text("", page.problem) if page.problem else read(page.path)
    return parse_text(page, page_text, cache)


def parse_text(page: Page, page_text: Text, cache: CacheFile) -> ParsedPage:
    """Parse the text of a page."""
    filename = display_path(page.path)
    if page_text.problem:
        problem = page_text.problem if page_text.problem != MISSING else ""
        return ParsedPage(page, filename, "", problem, None)
    source_text = page_text.text
    digest = cache_key(source_text)
    note = get_or_compute(cache, "note", digest, Note, lambda: _parse_markdown(source_text))
    return ParsedPage(page, filename, source_text, "", note, digest)


def _parse_markdown(text: str) -> Note:
    from notelab.page import reading  # a cached page doesn't need its patterns

    return reading.read(text)
