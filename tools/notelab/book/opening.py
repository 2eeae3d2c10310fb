"""A bench as the user's environment and options ask for it: store, content cache, mirrors."""

import os
from pathlib import Path

from notelab.book.finding_labs import labs_below, no_such_source
from notelab.book.workbook import Bench
from notelab.cache import DiskCache
from notelab.errors import NotelabError
from notelab.lab import lab
from notelab.lab.lab import repository_root
from notelab.report.terminal import print_progress, say
from notelab.sources.library import Library
from notelab.sources.store import Store, default_root


def open_bench(
    mirrors: tuple[str, ...],
    *near: Path,
    source: str = "",
    offline: bool = False,
    anew: bool = False,
) -> Bench:
    """Open the store and the content cache, where the user's environment puts them.

    Args:
        mirrors: as typed, `NAME=DIR`.
        near: what else of labs was typed: a mirror is of a source of one there, or here.
        source: that no lab has yet.
        offline: ask no remote.
        anew: ask again whoever said no some minutes ago.

    Raises:
        NotelabError: a mirror is no folder, or of no source.
    """
    asked = os.environ.get("SHARDBOOK_CACHE")
    root = _folder(asked).absolute() if asked else default_root()
    library = Library(
        Store(root),
        _mirrors(mirrors, near, source),
        offline=offline,
        anew=anew,
        progress=lambda text: say(text, stderr=True),
    )
    return Bench(DiskCache(root / "memo"), library, print_progress)


def _mirrors(given: tuple[str, ...], near: tuple[Path, ...], source: str) -> dict[str, Path]:
    prefix = "SHARDBOOK_MIRROR_"
    found = {
        _plain(name[len(prefix) :]): _folder(value)
        for name, value in os.environ.items()
        if name.startswith(prefix) and value
    }
    known = [source] if source else _sources(near) if given else []
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals or not name or not folder:
            raise NotelabError(f"--mirror {one}: expected NAME=DIR, a source and its clone on disk")
        # The environment's may be for another workbook; what is typed is meant for this one.
        if _plain(name) not in map(_plain, known):
            raise no_such_source(name, known)
        found[_plain(name)] = _folder(folder)
    for name, path in found.items():
        if not path.is_dir():
            raise NotelabError(f"the mirror of `{name}`, {path}, is no folder")
    return found


def _folder(typed: str) -> Path:
    try:
        return Path(typed).expanduser()
    except RuntimeError:
        raise NotelabError(f"{typed}: nobody here is called that") from None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _sources(near: tuple[Path, ...]) -> list[str]:
    """Return the sources of all labs of the repositories that one is about."""
    roots = dict.fromkeys(repository_root(place.resolve()) for place in (Path.cwd(), *near))
    labs = (lab.load(folder) for root in roots for folder in labs_below(root))
    return list(dict.fromkeys(name for one in labs for name in one.sources))
