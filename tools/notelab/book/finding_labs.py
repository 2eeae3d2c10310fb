"""Which labs a command is about: from the paths it was given, or all of them in the repository."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from notelab.errors import NotelabError, did_you_mean, display_path
from notelab.lab import lab as lab_file
from notelab.lab import pages as lab_pages
from notelab.lab.lab import LAB_FILE, Lab, repository_root
from notelab.lines import split_lines
from notelab.page import results_page
from notelab.regular_files import read_regular

_LONGEST_IGNORE = 1_000_000  # bytes
_NOT_OURS = {"node_modules", "site-packages", "__pycache__"}
_QUOTED = re.compile(r"RESULTS(?:\.[a-z]{2})?\.md\Z")
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
            f"no lab: {display_path(root)} and the folders in it hold no {LAB_FILE}",
            hint="name a lab's folder or a note",
        )
    return labs


def asked(
    paths: list[Path], load: Callable[[Path], Lab], *, idle: bool = False
) -> tuple[Wanted, list[Path]]:
    """Sort paths into labs: each lab's folder with the pages asked for (None: the whole lab).

    No path asks for every lab of the repository.

    Args:
        paths: labs' folders, folders of labs, pages, or any file that a lab hangs on.
        load: reads the lab in a folder.
        idle: nothing to do is no fault, as for a hook that hands over whatever is committed.

    Returns also the files that no lab knows.

    Raises:
        NotelabError: a path doesn't exist, a folder is no lab, or no lab knows any of the files.
    """
    if not paths:
        return dict.fromkeys(default_labs(Path.cwd())), []
    wanted: Wanted = {}
    strays: list[Path] = []
    houses: dict[Path, _House] = {}
    for path in paths:
        resolved = _resolved(path)
        # os.path answers also for a name that is too long, where Path raises.
        if os.path.isdir(resolved):  # noqa: PTH112
            wanted |= dict.fromkeys(_labs_in(resolved))
            continue
        if not os.path.exists(resolved):  # noqa: PTH110
            raise NotelabError(f"{path}: no such file or folder")
        root = repository_root(resolved.parent)
        house = houses.setdefault(root, _House(root, load))
        whole, owners = house.hanging_on(resolved), house.pages.get(resolved, [])
        for owner in owners:
            pages = wanted.setdefault(owner, set())
            if pages is not None:
                pages.add(resolved)
        wanted |= dict.fromkeys(whole)
        if not whole and not owners:
            strays.append(path)
    if not wanted and not idle:
        raise NotelabError(
            f"{', '.join(map(str, strays[:3]))}: no page of a lab, nor a file that a lab hangs on",
            hint="a lab.toml names its notes and `pages`; without PATH every lab is taken",
        )
    return wanted, strays


def lab_with(source: str, folder: Path | None, here: Path, *, to_write: str = "") -> Path:
    """Return the folder of the lab that owns `source` and its pin.

    Where several do, the first will do to read from. A command that writes says in `to_write` how
    it is typed, and is told to name the lab.

    Raises:
        NotelabError: no lab has it; the message names the sources there are. Or several own it.
    """
    labs = [folder.resolve()] if folder else default_labs(here)
    owners: dict[str, dict[Path, None]] = {}
    for one in labs:
        lab = lab_file.load(one)
        for name in lab.sources:
            owners.setdefault(name, {})[lab.pins_folder] = None
    known = {name: next(iter(folders)) for name, folders in owners.items()}
    if source not in known:
        raise no_such_source(source, known)
    if to_write and len(owners[source]) > 1:
        names = ", ".join(display_path(one) for one in owners[source])
        raise NotelabError(
            f"{len(owners[source])} labs have a source called {source!r}: {names}",
            hint="name the one you mean: "
            f"`{to_write} --lab {display_path(list(owners[source])[-1])}`",
        )
    return known[source]


def no_such_source(name: str, known: Iterable[str]) -> NotelabError:
    """Return the error that says which sources there are, and the nearest."""
    names = ", ".join(f"`{one}`" for one in known) or "none"
    return NotelabError(
        f"no lab has a source called {name!r}; there are: {names}",
        hint=did_you_mean(name, known),
    )


class _House:
    """The labs of a repository; by page those that judge it; and which of them know a file."""

    def __init__(self, root: Path, load: Callable[[Path], Lab]) -> None:
        self._labs = {folder: load(folder) for folder in labs_below(root)}
        self.pages: dict[Path, list[Path]] = {}
        self._perhaps_generated: set[Path] = set()
        for folder, lab in self._labs.items():
            for page in lab_pages.list_pages(lab):
                self.pages.setdefault(page.path, []).append(folder)
                # The notes that a lab file lists are written by their authors.
                if not page.listed and not page.problem:
                    self._perhaps_generated.add(page.path)

    def hanging_on(self, file: Path) -> list[Path]:
        """Return the labs that a file puts in question as a whole, every page of theirs."""
        if _QUOTED.match(file.name) and file in self.pages:
            return list(self._labs)  # any page may quote its numbers
        found = list(self._generated_from(file))
        near = next((folder for folder in file.parents if folder in self._labs), None)
        own = near is not None and (file.suffix != ".md" or file.name == LAB_FILE)
        for folder, lab in self._labs.items():
            borrows = near == lab.pins_folder and file.parent == near
            pins = file.parent == lab.pins_folder and any(
                source.pin == file.name for source in lab.sources.values()
            )
            if pins or (own and (folder == near or borrows)):
                found.append(folder)
        return list(dict.fromkeys(found))

    def _generated_from(self, file: Path) -> Iterator[Path]:
        """Yield the labs of the pages that were generated from a file."""
        above = set(file.parents)
        for page in self._perhaps_generated:
            if page.parent in above and file in results_page.input_files(page):
                yield from self.pages[page]


def _resolved(path: Path) -> Path:
    """Return where a path leads; of a link to a file outside of its repository, the link."""
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
    """Return the folders with a lab.toml, but those of another repository or of an installation.

    What .gitignore names is none of ours either. Outside of a repository only two floors are
    searched: nobody wants all of a home read.
    """
    labs = []
    top = repository_root(root)
    deep = (root / ".git").exists() or top != root
    ignored = _ignored(top)
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


def _ignored(root: Path) -> set[str]:
    """Return the folders that .gitignore names, without a wildcard: a built site holds labs too."""
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
    held = (folder / ".git", folder / "pyvenv.cfg")
    return any(os.path.exists(place) for place in held)  # noqa: PTH110 (a walk asks thousands)
