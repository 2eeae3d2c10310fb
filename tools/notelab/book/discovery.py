"""Finds the labs that a command is about: those of the given paths, or all in the repository."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from notelab.errors import NotelabError, did_you_mean, display_path
from notelab.files import read_regular
from notelab.lab import lab as lab_file
from notelab.lab import lock as lock_file
from notelab.lab import pages as lab_pages
from notelab.lab.lab import LAB_FILE, Lab, repository_root
from notelab.lab.pins import HEAD
from notelab.lines import split_lines
from notelab.page import results_page

_LONGEST_IGNORE = 1_000_000  # bytes
_NOT_OURS = {"node_modules", "site-packages", "__pycache__"}
_RESULTS_PAGE = re.compile(r"RESULTS(?:\.[a-z]{2})?\.md\Z")
Wanted = dict[Path, set[Path] | None]


def default_labs(here: Path) -> list[Path]:
    """Return every folder of the repository that holds a lab.toml.

    Raises:
        NotelabError: there is none.
    """
    root = repository_root(here.resolve())
    labs = labs_below(root)
    if not labs:
        raise NotelabError(
            f"no lab found: {display_path(root)} and the folders in it have no {LAB_FILE}",
            hint="name a lab's folder or a note",
        )
    return labs


def select_labs(
    paths: list[Path], load: Callable[[Path], Lab], *, may_be_nothing: bool = False
) -> tuple[Wanted, list[Path]]:
    """Return each lab's folder with its selected pages (None: the whole lab), and unknown files.

    Without paths, every lab of the repository is selected.

    Args:
        paths: folders of labs, folders that contain labs, pages, or files that affect a lab.
        load: reads the lab in a folder.
        may_be_nothing: allow that no lab is affected, for a hook that passes all committed files.

    Raises:
        NotelabError: a path doesn't exist, a folder is no lab, or no lab knows any of the files.
    """
    if not paths:
        return dict.fromkeys(default_labs(Path.cwd())), []
    wanted: Wanted = {}
    strays: list[Path] = []
    repositories: dict[Path, _Repository] = {}
    for path in paths:
        resolved = _resolve_path(path)
        # Unlike Path, os.path doesn't raise for a name that is too long.
        if os.path.isdir(resolved):  # noqa: PTH112
            wanted |= dict.fromkeys(_labs_in(resolved))
            continue
        if not os.path.exists(resolved):  # noqa: PTH110
            raise NotelabError(f"{path}: no such file or folder")
        root = repository_root(resolved.parent)
        repository = repositories.setdefault(root, _Repository(root, load))
        whole, owners = repository.affected_by(resolved), repository.pages.get(resolved, [])
        for owner in owners:
            pages = wanted.setdefault(owner, set())
            if pages is not None:
                pages.add(resolved)
        wanted |= dict.fromkeys(whole)
        if not whole and not owners:
            strays.append(path)
    if not wanted and not may_be_nothing:
        raise NotelabError(
            f"{', '.join(map(str, strays[:3]))}: neither a page of a lab nor a file that one uses",
            hint="name a lab's folder or one of its pages; without PATH, every lab is taken",
        )
    return wanted, strays


def find_lab(source: str, folder: Path | None, here: Path, *, to_write: str = "") -> Path:
    """Return the folder of the lab that owns `source` and its pin.

    If several labs own it, a command that only reads gets the first. A command that writes gives
    its own text as `to_write`, and then the user has to name the lab.

    Raises:
        NotelabError: no lab has the source (the message lists all sources), or several own it.
    """
    labs = [folder.resolve()] if folder else default_labs(here)
    owners: dict[str, dict[Path, None]] = {}
    for lab_folder in labs:
        lab = lab_file.load(lab_folder)
        for name in lab.sources:
            owners.setdefault(name, {})[lab.pins_folder] = None
    folder_by_source = {name: next(iter(folders)) for name, folders in owners.items()}
    if source not in folder_by_source:
        raise unknown_source_error(source, folder_by_source)
    if to_write and len(owners[source]) > 1:
        names = ", ".join(display_path(lab_folder) for lab_folder in owners[source])
        raise NotelabError(
            f"{len(owners[source])} labs have a source called {source!r}: {names}",
            hint="name the one you mean: "
            f"`{to_write} --lab {display_path(list(owners[source])[-1])}`",
        )
    return folder_by_source[source]


def unknown_source_error(name: str, sources: Iterable[str]) -> NotelabError:
    """Return the error that lists the known sources and suggests the closest."""
    names = ", ".join(f"`{source}`" for source in sources) or "none"
    return NotelabError(
        f"no lab has a source called {name!r}; the sources are: {names}",
        hint=did_you_mean(name, sources),
    )


class _Repository:
    """The labs of a repository, and for each page the labs that judge it."""

    def __init__(self, root: Path, load: Callable[[Path], Lab]) -> None:
        self._labs = {folder: load(folder) for folder in labs_below(root)}
        self.pages: dict[Path, list[Path]] = {}
        self._perhaps_generated: set[Path] = set()
        self._citing: dict[Path, list[Path]] = {}  # labs by a file of the working tree
        for folder, lab in self._labs.items():
            for path in list_worktree_files(lab):
                self._citing.setdefault(path, []).append(folder)
            for page in lab_pages.list_pages(lab):
                self.pages.setdefault(page.path, []).append(folder)
                # The notes that a lab file lists are written by their authors.
                if not page.listed and not page.problem:
                    self._perhaps_generated.add(page.path)

    def affected_by(self, file: Path) -> list[Path]:
        """Return the labs that must be checked again completely when `file` changes."""
        if _RESULTS_PAGE.match(file.name) and file in self.pages:
            return list(self._labs)  # any page may quote its numbers
        affected = [*self._generated_from(file), *self._citing.get(file, [])]
        nearest = next((folder for folder in file.parents if folder in self._labs), None)
        belongs_to_nearest = nearest is not None and (file.suffix != ".md" or file.name == LAB_FILE)
        for folder, lab in self._labs.items():
            borrows = nearest == lab.pins_folder and file.parent == nearest
            pins = file.parent == lab.pins_folder and any(
                source.pin == file.name for source in lab.sources.values()
            )
            if pins or (belongs_to_nearest and (folder == nearest or borrows)):
                affected.append(folder)
        return list(dict.fromkeys(affected))

    def _generated_from(self, file: Path) -> Iterator[Path]:
        """Yield the labs whose pages were generated from a file."""
        above = set(file.parents)
        for page in self._perhaps_generated:
            if page.parent in above and file in results_page.input_files(page):
                yield from self.pages[page]


def list_worktree_files(lab: Lab) -> list[Path]:
    """Return the files of this repository's working tree that a lab's lock has."""
    names = [name for name, table in lab.sources.items() if table.pin == HEAD]
    lock = lock_file.load(lab.folder / lock_file.LOCK_FILE) if names else None
    sources = [lock.sources[name] for name in names if name in lock.sources] if lock else []
    return [lab.root / path for source in sources for path in source.files]


def _resolve_path(path: Path) -> Path:
    """Resolve a path; a link that leads out of its repository is returned itself."""
    resolved = path.resolve()
    if not os.path.islink(path):  # noqa: PTH114 (Path raises for a name that is too long)
        return resolved
    link = path.parent.resolve() / path.name
    return resolved if resolved.is_relative_to(repository_root(link.parent)) else link


def _labs_in(folder: Path) -> list[Path]:
    if (folder / LAB_FILE).exists():
        return [folder]
    labs = labs_below(folder)
    if not labs:
        raise NotelabError(
            f"{display_path(folder / LAB_FILE)}: no such lab file",
            hint="a lab is a folder with a lab.toml",
        )
    return labs


def labs_below(root: Path) -> list[Path]:
    """Return the folders with a lab.toml, except in other repositories and installations.

    Folders that .gitignore names are skipped. Outside of a repository only two levels are searched,
    so that a whole home folder is never read.
    """
    labs = []
    top = repository_root(root)
    deep = (root / ".git").exists() or top != root
    ignored = _read_ignored_names(top)
    for place, folders, files in os.walk(root):
        here = Path(place)
        if LAB_FILE in files:
            labs.append(here)
        if not deep and len(here.relative_to(root).parts) >= 2:
            folders.clear()
        folders[:] = sorted(
            name for name in folders if name not in ignored and not _is_foreign(here / name)
        )
    return sorted(labs)


def _read_ignored_names(root: Path) -> set[str]:
    """Return the names in .gitignore that hold no wildcard; a built site contains labs, too."""
    try:
        data = read_regular(root / ".gitignore", _LONGEST_IGNORE)
    except OSError:
        return set()
    lines = split_lines(data.decode("utf-8", "replace"))
    names = {line.strip().strip("/") for line in lines if not line.startswith(("#", "!"))}
    return {name for name in names if not set(name) & set("*?[/\\")}


def _is_foreign(folder: Path) -> bool:
    name = folder.name
    if name.startswith(".") or name in _NOT_OURS:
        return True
    markers = (folder / ".git", folder / "pyvenv.cfg")
    return any(os.path.exists(place) for place in markers)  # noqa: PTH110 (a walk asks thousands)
