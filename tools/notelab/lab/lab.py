"""A lab: its sources, pins and limits, read from `lab.toml` and validated."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from notelab.cache import CacheFile
from notelab.codes import RULES
from notelab.errors import NotelabError, did_you_mean, display_path
from notelab.lab.lab_file import LabFile, SourceTable, decode
from notelab.sources.answers import Source

LAB_FILE = "lab.toml"
_LONGEST_NAME = 240  # file systems allow 255 bytes; a translation's name is longer
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,39}\Z")
_WHEEL = re.compile(r"^[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+\Z")
LANGUAGE = re.compile(r"^[a-z]{2}\Z")
DEFAULT_CLOSINGS = {"en": "Connect the dots", "es": "Une los puntos"}


class Lab(msgspec.Struct, frozen=True):
    """A lab on disk: its folder, its file, and the folder whose pins and lock it uses."""

    folder: Path
    root: Path
    file: LabFile
    sources: dict[str, SourceTable]
    pins_folder: Path
    page_paths: dict[str, Path]  # the path of each page that the file names
    solution: list[Path]  # the pages that the lab is compared with

    @property
    def languages(self) -> list[str]:
        """Return the lab's languages; the first is that of the original pages."""
        return self.file.lab.languages

    def source(self, name: str, commit: str) -> Source:
        """Return a source at a commit, in the form that the providers take."""
        table = self.sources[name]
        return Source(
            name=name,
            url=table.url,
            commit=commit,
            release=table.release or None,
            wheel=table.wheel or None,
            local_repository=str(self.root) if table.path else "",
        )

    @property
    def compares(self) -> bool:
        """Return whether the lab is compared with pages of another lab, as a learner's lab is."""
        return bool(self.solution) and not set(self.solution) & set(self.page_paths.values())

    def closing_heading(self, language: str) -> str:
        """Return the heading that closes a note in `language`, or '' if none is defined."""
        headings = {**DEFAULT_CLOSINGS, **self.file.lab.closing_heading}
        return headings.get(language, "")


def load(folder: Path, file: LabFile | None = None, cache: CacheFile | None = None) -> Lab:
    """Read `folder/lab.toml`, or take its content in `file`, which may not be written yet.

    With `cache`, a file is parsed once.

    Raises:
        NotelabError: the file is missing, is not TOML, or holds something that the schema does not
            have; the message names the key and the most similar valid key.
    """
    folder = folder.resolve()
    file = file or decode(folder / LAB_FILE, cache)
    root = repository_root(folder)
    _raise_first_fault(folder, file)
    sources, pins_folder = file.sources, folder
    if file.lab.sources_from:
        pins_folder = _resolve_inside(folder, root, file.lab.sources_from, "lab.sources-from")
        source_lab_file = decode(pins_folder / LAB_FILE, cache)
        if source_lab_file.lab.sources_from:
            raise NotelabError(
                f"{display_path(pins_folder / LAB_FILE)}: lab.sources-from must name a lab that "
                "has its own [sources], not one that borrows them too"
            )
        _raise_first_fault(pins_folder, source_lab_file)
        sources = source_lab_file.sources
    names = dict.fromkeys([*file.notes, *file.diagrams])
    page_paths = {name: _resolve_inside(folder, root, name, f'"{name}"') for name in names}
    solution = [_resolve_inside(folder, root, name, "lab.solution") for name in file.lab.solution]
    lab = Lab(folder, root, file, sources, pins_folder, page_paths, solution)
    _check_note_sources(lab)
    return lab


def repository_root(folder: Path) -> Path:
    """Return the top of the repository that holds `folder`, else the folder itself."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return folder


def _raise_first_fault(folder: Path, file: LabFile) -> None:
    """Raise the first fault of a lab file as an error."""
    own = [name for name, source in file.sources.items() if source.path]
    if own and not (repository_root(folder) / ".git").exists():
        raise NotelabError(
            f'{display_path(folder / LAB_FILE)}: sources.{own[0]} has path = ".", '
            "but the lab is in no git repository",
            hint="`git init`, or check a clone instead of an exported copy",
        )
    if fault := next(_find_faults(file), None):
        problem, hint = fault
        raise NotelabError(f"{display_path(folder / LAB_FILE)}: {problem}", hint=hint)


def _find_faults(file: LabFile) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a lab file, each fault with its hint."""
    languages = file.lab.languages
    invalid = [code for code in languages if not LANGUAGE.match(code)]
    if not languages or invalid or len(set(languages)) != len(languages):
        yield f"lab.languages must list two-letter codes, each once; found {languages}", ""
    for name, source in file.sources.items():
        yield from _find_source_faults(name, source)
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
    if file.lab.min_new_choices and not file.lab.before:
        yield "lab.min-new-choices needs lab.before, the pages with which it compares", ""
    for key, globs in (("pages", file.lab.pages), ("before", file.lab.before)):
        for glob in globs:
            if not glob or PurePosixPath(glob).is_absolute() or "\\" in glob:
                yield f"lab.{key} must hold relative globs, not {glob!r}", ""


def _find_source_faults(name: str, source: SourceTable) -> Iterator[tuple[str, str]]:
    from notelab.sources.git.url import check_url

    if not _NAME.match(name):
        yield f"`{name}` cannot name a source; use letters, digits, - _", ""
    if source.path and (source.url or source.path != "."):
        rule = 'can only be ".", the repository that the lab is in, in place of a url'
        yield f"sources.{name}.path {rule}; found {source.path!r}", ""
    if source.pin == "HEAD" and not source.path:
        rule = 'can only be "HEAD" with path = ".", the repository that the lab is in'
        yield f"sources.{name}.pin {rule}", "name the file that holds the commit"
    try:
        if not source.path:
            check_url(source.url)
    except NotelabError as fault:
        yield f"sources.{name}.url: {fault}", fault.hint
    if not _is_file_name(source.pin):
        yield f"sources.{name}.pin must name a file next to lab.toml, not {source.pin!r}", ""
    if source.wheel and not _WHEEL.match(source.wheel):
        yield f"sources.{name}.wheel must be `name==version`, not {source.wheel!r}", ""


def _is_file_name(name: str) -> bool:
    is_plain = name.isprintable() and "/" not in name and "\\" not in name
    return is_plain and bool(name.strip(". ")) and len(name) <= _LONGEST_NAME


def _resolve_inside(folder: Path, root: Path, name: str, key: str) -> Path:
    """Resolve a path from a lab file; raise an error if it leaves the repository."""
    usable = name.isprintable() and max(map(len, name.split("/"))) <= _LONGEST_NAME
    if not name or name.startswith(("/", "~")) or "\\" in name or not usable or len(name) > 1000:
        lab_file = display_path(folder / LAB_FILE)
        raise NotelabError(f"{lab_file}: {key} must be a path relative to the lab, not {name!r}")
    path = folder / name
    if "/" not in name and name != ".." and not path.is_symlink():
        return path  # resolving the names of a thousand notes takes long
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise NotelabError(f"{display_path(folder / LAB_FILE)}: {key} leaves the repository")
    return resolved


def _check_note_sources(lab: Lab) -> None:
    for name, note in lab.file.notes.items():
        for source in note.sources:
            if source not in lab.sources:
                raise NotelabError(
                    f'{display_path(lab.folder / LAB_FILE)}: notes."{name}".sources names '
                    f"`{source}`, which has no [sources] table",
                    hint=did_you_mean(source, lab.sources),
                )
