"""The paths that a reader may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches

_AT_MOST = 3


def nearest(path: str, names: Iterable[str]) -> list[str]:
    """Return up to three of `names` near `path`: alike in its folder, its name elsewhere, alike."""
    known = list(names)
    folder, _, last = path.rpartition("/")
    siblings = [name for name in known if name.rpartition("/")[0] == folder]
    found = get_close_matches(path, siblings, n=_AT_MOST, cutoff=0.8)
    same = [name for name in known if name.rpartition("/")[2] == last]
    found += sorted(same, key=lambda name: (-_shared(path, name), name))
    if not found:
        lasts = {name.rpartition("/")[2] for name in known}
        alike = set(get_close_matches(last, lasts, n=_AT_MOST, cutoff=0.8))
        close = [name for name in known if name.rpartition("/")[2] in alike]
        found = sorted(close, key=lambda name: (-_shared(path, name), name))
    return list(dict.fromkeys(found))[:_AT_MOST]


def _shared(one: str, other: str) -> int:
    return len(set(one.split("/")) & set(other.split("/")))
