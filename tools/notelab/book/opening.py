"""Opens a check session: store, cache and mirrors, from the user's environment and options."""

import os
from collections.abc import Iterable
from pathlib import Path

from notelab.book.discovery import labs_below, unknown_source_error
from notelab.book.workbook import CheckSession
from notelab.cache import DiskCache
from notelab.errors import NotelabError
from notelab.lab import lab
from notelab.lab.lab import repository_root
from notelab.report.terminal import print_progress, say
from notelab.sources.library import Library
from notelab.sources.store import Store, default_root


def open_session(
    mirrors: tuple[str, ...],
    *places: Path,
    sources: Iterable[str] = (),
    offline: bool = False,
    refresh: bool = False,
) -> CheckSession:
    """Open the store and the cache where the user's environment puts them.

    Args:
        mirrors: the options as typed, `NAME=DIR`.
        places: the paths that were typed. A mirror must belong to a source of a lab in their
            repositories, or in the current one.
        sources: sources that no lab has yet; only these may have mirrors then.
        offline: ask no remote.
        refresh: ask remotes again, even those that failed some minutes ago.

    Raises:
        NotelabError: a mirror is no folder, or belongs to no source.
    """
    cache_folder = os.environ.get("SHARDBOOK_CACHE")
    root = _expand(cache_folder).absolute() if cache_folder else default_root()
    library = Library(
        Store(root, refresh=refresh),
        _read_mirrors(mirrors, places, list(sources)),
        offline=offline,
        progress=lambda text: say(text, stderr=True),
    )
    return CheckSession(DiskCache(root / "memo"), library, print_progress)


def _read_mirrors(
    typed_mirrors: tuple[str, ...], places: tuple[Path, ...], sources: list[str]
) -> dict[str, Path]:
    prefix = "SHARDBOOK_MIRROR_"
    mirrors = {
        _normalize(name[len(prefix) :]): _expand(value)
        for name, value in os.environ.items()
        if name.startswith(prefix) and value
    }
    sources = sources or (_list_sources(places) if typed_mirrors else [])
    for typed in typed_mirrors:
        name, equals, folder = typed.partition("=")
        if not equals or not name or not folder:
            raise NotelabError(
                f"--mirror {typed}: expected NAME=DIR, a source and its clone on disk"
            )
        # Mirrors in the environment may be for other workbooks; typed ones are for this one.
        if _normalize(name) not in map(_normalize, sources):
            raise unknown_source_error(name, sources)
        mirrors[_normalize(name)] = _expand(folder)
    for name, path in mirrors.items():
        if not path.is_dir():
            raise NotelabError(f"the mirror of `{name}`, {path}, is not a folder")
    return mirrors


def _expand(typed: str) -> Path:
    try:
        return Path(typed).expanduser()
    except RuntimeError:
        raise NotelabError(f"{typed}: no user has this name") from None


def _normalize(name: str) -> str:
    return name.lower().replace("_", "-")


def _list_sources(places: tuple[Path, ...]) -> list[str]:
    """Return the sources of all labs in the repositories of the places and the current one."""
    roots = dict.fromkeys(repository_root(place.resolve()) for place in (Path.cwd(), *places))
    labs = (lab.load(folder) for root in roots for folder in labs_below(root))
    return list(dict.fromkeys(name for each in labs for name in each.sources))
