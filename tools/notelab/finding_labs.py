"""Which labs a command is about: from the paths it was given, or all of them under experiments/."""

import os
from collections.abc import Callable
from pathlib import Path

from notelab import pages as lab_pages
from notelab.errors import NotelabError
from notelab.lab import LAB_FILE, Lab, repository_root
from notelab.view import shown


def default_labs(here: Path) -> list[Path]:
    """Return every folder under the repository's experiments/ that holds a lab.toml.

    Raises:
        NotelabError: there is none.
    """
    root = repository_root(here.resolve())
    labs = sorted(path.parent for path in (root / "experiments").glob(f"*/{LAB_FILE}"))
    if not labs:
        raise NotelabError(
            f"no lab: {shown(root / 'experiments')} holds no folder with a {LAB_FILE}",
            hint="name a lab's folder or a note",
        )
    return labs


def asked(
    paths: list[Path], load: Callable[[Path], Lab]
) -> tuple[dict[Path, set[Path] | None], list[Path]]:
    """Sort paths into labs: each lab's folder with the pages asked for (None: the whole lab).

    Args:
        paths: labs' folders, folders of labs, pages, or a lab's other files.
        load: reads the lab in a folder.

    Returns also the files that are no page of any lab.

    Raises:
        NotelabError: a path doesn't exist, or a folder is no lab.
    """
    wanted: dict[Path, set[Path] | None] = {}
    strays: list[Path] = []
    for path in paths:
        resolved = path.resolve()
        # os.path answers also for a name that is too long, where Path raises.
        is_folder = os.path.isdir(resolved)  # noqa: PTH112
        if is_folder or path.name == LAB_FILE:
            folder = resolved if is_folder else resolved.parent
            for lab in _labs_in(folder):
                wanted[lab] = None
            continue
        if not os.path.exists(resolved):  # noqa: PTH110
            raise NotelabError(f"{path}: no such file or folder")
        owners = _owners(resolved, load)
        for owner in owners:
            pages = wanted.setdefault(owner, set())
            if pages is not None:
                pages.add(resolved)
        if not owners:
            strays.append(path)
    return wanted, strays


def _labs_in(folder: Path) -> list[Path]:
    if (folder / LAB_FILE).exists():
        return [folder]
    labs = sorted(path.parent for path in folder.glob(f"*/{LAB_FILE}"))
    labs += sorted(path.parent for path in folder.glob(f"experiments/*/{LAB_FILE}"))
    if not labs:
        raise NotelabError(
            f"{shown(folder / LAB_FILE)}: no such lab file",
            hint="a lab is a folder with a lab.toml",
        )
    return labs


def _owners(page: Path, load: Callable[[Path], Lab]) -> list[Path]:
    """Return the labs that judge a page: the one in its folder or above, or any that names it."""
    root = repository_root(page.parent)
    near = [folder for folder in page.parents if (folder / LAB_FILE).exists()][:1]
    known = sorted(path.parent for path in (root / "experiments").glob(f"*/{LAB_FILE}"))
    owners = []
    for folder in dict.fromkeys([*near, *known]):
        if folder in near and page.suffix != ".md":
            # The pin, the lock or lab.toml itself changed: the whole lab is in question.
            return [folder]
        found = lab_pages.of_lab(load(folder))
        if any(page == one.path for one in found):
            owners.append(folder)
    return owners
