"""A bench as the user's environment and options ask for it: store, content cache, mirrors."""

import os
from pathlib import Path

from notelab.book.workbook import Bench
from notelab.errors import NotelabError
from notelab.memo import Memo
from notelab.report.terminal import count, say
from notelab.sources.library import Library
from notelab.sources.store import Store, default_root


def open_bench(mirrors: tuple[str, ...], *, offline: bool = False, anew: bool = False) -> Bench:
    """Open the store and the content cache, where the user's environment puts them.

    With `anew` whoever said no some minutes ago is asked again.
    """
    asked = os.environ.get("SHARDBOOK_CACHE")
    root = Path(asked).expanduser().absolute() if asked else default_root()
    library = Library(
        Store(root),
        _mirrors(mirrors),
        offline=offline,
        anew=anew,
        progress=lambda text: say(text, aside=True),
    )
    return Bench(Memo(root / "memo"), library, count)


def _mirrors(given: tuple[str, ...]) -> dict[str, Path]:
    prefix = "SHARDBOOK_MIRROR_"
    found = {
        name[len(prefix) :].lower().replace("_", "-"): Path(value).expanduser()
        for name, value in os.environ.items()
        if name.startswith(prefix) and value
    }
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals or not name or not folder:
            raise NotelabError(f"--mirror {one}: expected NAME=DIR, a source and its clone on disk")
        found[name.lower().replace("_", "-")] = Path(folder).expanduser()
    for name, path in found.items():
        if not path.is_dir():
            raise NotelabError(f"the mirror of `{name}`, {path}, is no folder")
    return found
