"""A lab: its sources, pins and stop conditions, as its `lab.toml` says and it may say."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from notelab.cache import DiskCache
from notelab.errors import NotelabError, did_you_mean, display_path
from notelab.lab.lab_file import LabFile, SourceTable, decode
from notelab.rules.codes import RULES
from notelab.sources.answers import Source

LAB_FILE = "lab.toml"
_LONGEST_NAME = 240  # file systems have 255 bytes, a translation three characters more
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,39}\Z")
_WHEEL = re.compile(r"^[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+\Z")
_LANGUAGE = re.compile(r"^[a-z]{2}\Z")
_DEFAULT_CLOSINGS = {"en": "Connect the dots", "es": "Une los puntos"}


class Lab(msgspec.Struct, frozen=True):
    """A lab on disk: its folder, its file, and the folder whose pins and lock it shares."""

    folder: Path
    root: Path
    file: LabFile
    sources: dict[str, SourceTable]
    pins_folder: Path
    places: dict[str, Path]  # where each page that the file names stands
    solution: list[Path]  # where each page stands that the lab is compared with

    @property
    def languages(self) -> list[str]:
        """Return the lab's languages; the first is the original."""
        return self.file.lab.languages

    def source(self, name: str, commit: str) -> Source:
        """Return a source as the providers are asked for it, at a commit."""
        table = self.sources[name]
        return Source(
            name=name,
            url=table.url,
            commit=commit,
            release=table.release or None,
            wheel=table.wheel or None,
            own=str(self.root) if table.path else "",
        )

    @property
    def compares(self) -> bool:
        """Tell whether the lab is compared with pages other than its own: a learner's is."""
        return bool(self.solution) and not set(self.solution) & set(self.places.values())

    def closing_heading(self, language: str) -> str:
        """Return the heading that closes a note in `language`, or '' when none is defined."""
        headings = {**_DEFAULT_CLOSINGS, **self.file.lab.closing_heading}
        return headings.get(language, "")


def load(folder: Path, cache: DiskCache | None = None) -> Lab:
    """Read `folder/lab.toml`; `cache` spares parsing it again while it is the same.

    Raises:
        NotelabError: the file is missing, is not TOML, or says something the schema doesn't know;
            the message names the key and, for a misspelt one, the nearest that exists.
    """
    folder = folder.resolve()
    file = decode(folder / LAB_FILE, cache)
    root = repository_root(folder)
    _check(folder, file)
    with os.scandir(folder) as entries:  # asked once, not of each of a thousand notes
        links = {entry.name for entry in entries if entry.is_symlink()}
    sources, pins_folder = file.sources, folder
    if file.lab.sources_from:
        pins_folder = _inside(folder, root, links, file.lab.sources_from, "lab.sources-from")
        other = decode(pins_folder / LAB_FILE, cache)
        if other.lab.sources_from:
            raise NotelabError(
                f"{display_path(pins_folder / LAB_FILE)}: lab.sources-from must name a lab that "
                "has its own [sources], not one that borrows them too"
            )
        _check(pins_folder, other)
        sources = other.sources
    named = dict.fromkeys([*file.notes, *file.diagrams])
    places = {name: _inside(folder, root, links, name, f'"{name}"') for name in named}
    solution = [_inside(folder, root, links, name, "lab.solution") for name in file.lab.solution]
    lab = Lab(folder, root, file, sources, pins_folder, places, solution)
    _check_note_sources(lab)
    return lab


def repository_root(folder: Path) -> Path:
    """Return the top of the repository that `folder` is in, else the folder itself."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return folder


def _check(folder: Path, file: LabFile) -> None:
    """Refuse a lab file for the first of its faults."""
    if fault := next(_faults(file), None):
        said, hint = fault
        raise NotelabError(f"{display_path(folder / LAB_FILE)}: {said}", hint=hint)


def _faults(file: LabFile) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a lab file, each with its hint."""
    languages = file.lab.languages
    bad = [code for code in languages if not _LANGUAGE.match(code)]
    if not languages or bad or len(set(languages)) != len(languages):
        yield f"lab.languages must list two-letter codes, each once; found {languages}", ""
    for name, source in file.sources.items():
        yield from _faults_of_source(name, source)
    for name, note in file.notes.items():
        low, high = note.choice_words or (1, 1)
        if low > high:
            yield f'notes."{name}".choice-words: {low} is above {high}', ""
    tables = {"lab": file.lab.ignore}
    tables |= {f'notes."{name}"': note.ignore for name, note in file.notes.items()}
    for table, codes in tables.items():
        for code in codes:
            if code not in RULES:
                hint = did_you_mean(code.upper(), RULES)
                yield f"{table}.ignore: {code[:40]!r} is no rule's code", hint
    for glob in file.lab.pages:
        if not glob or PurePosixPath(glob).is_absolute() or "\\" in glob:
            yield f"lab.pages must hold relative globs, not {glob!r}", ""


def _faults_of_source(name: str, source: SourceTable) -> Iterator[tuple[str, str]]:
    from notelab.sources.git.url import check_url

    if not _NAME.match(name):
        yield f"`{name}` cannot name a source; use letters, digits, - _", ""
    if source.path and (source.url or source.path != "."):
        said = 'can only be ".", the repository that the lab is in, in place of a url'
        yield f"sources.{name}.path {said}; found {source.path!r}", ""
    try:
        if not source.path:
            check_url(source.url)
    except NotelabError as fault:
        yield f"sources.{name}.url: {fault}", fault.hint
    if not _is_file_name(source.pin):
        yield f"sources.{name}.pin must name a file beside lab.toml, not {source.pin!r}", ""
    if source.wheel and not _WHEEL.match(source.wheel):
        yield f"sources.{name}.wheel must be `name==version`, not {source.wheel!r}", ""


def _is_file_name(name: str) -> bool:
    plain = name.isprintable() and "/" not in name and "\\" not in name
    return plain and bool(name.strip(". ")) and len(name) <= _LONGEST_NAME


def _inside(folder: Path, root: Path, links: set[str], name: str, key: str) -> Path:
    """Resolve a path that a lab file gives, refusing one that leaves the repository."""
    usable = name.isprintable() and max(map(len, name.split("/"))) <= _LONGEST_NAME
    if not name or name.startswith(("/", "~")) or "\\" in name or not usable or len(name) > 1000:
        where = display_path(folder / LAB_FILE)
        raise NotelabError(f"{where}: {key} must be a path relative to the lab, not {name!r}")
    place = folder / name
    if "/" not in name and name not in (".", "..") and name not in links:
        return place  # beside lab.toml, whose folder is resolved: nothing leads elsewhere
    resolved = place.resolve()
    if not resolved.is_relative_to(root):
        raise NotelabError(f"{display_path(folder / LAB_FILE)}: {key} leaves the repository")
    return resolved


def _check_note_sources(lab: Lab) -> None:
    for name, note in lab.file.notes.items():
        for source in note.sources:
            if source not in lab.sources:
                raise NotelabError(
                    f'{display_path(lab.folder / LAB_FILE)}: notes."{name}".sources names '
                    f"`{source}`, which is no [sources] table",
                    hint=did_you_mean(source, lab.sources),
                )
