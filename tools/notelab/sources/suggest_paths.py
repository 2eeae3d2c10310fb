"""Tells which files of a tree an author may have meant by a path that the tree lacks."""

from collections.abc import Iterable
from difflib import get_close_matches

from notelab.sources.answers import Absent

_AT_MOST = 3


def make_absent(path: str, names: list[str]) -> Absent:
    """Return that a tree with the files `names` has none at `path`, and which are close to it."""
    ends = [name for name in names if name.endswith(f"/{path}")]
    return Absent(path, True, suggest_paths(path, names), ends=ends, has_kin=has_kin(path, names))


def has_kin(path: str, names: Iterable[str]) -> bool:
    """Tell whether a file has the ending of `path`, or its name if it has no ending.

    >>> has_kin("node.js", ["a/b.py"]), has_kin("gone.py", ["a/b.py"])
    (False, True)
    """
    name = path.rpartition("/")[2].lower()
    stem, _, ending = name.rpartition(".")
    end = f".{ending}" if stem else f"/{name}"
    return any(f"/{each}".lower().endswith(end) for each in names)


def suggest_paths(path: str, names: Iterable[str]) -> list[str]:
    """Return up to three of `names` that are close to `path`.

    Similar names in the same folder come first, then the same name in other folders; only if there
    are none, similar names in other folders.
    """
    paths = list(names)
    folder, _, last = path.rpartition("/")
    siblings = [name for name in paths if name.rpartition("/")[0] == folder]
    suggestions = get_close_matches(path, siblings, n=_AT_MOST, cutoff=0.8)
    same_name = [name for name in paths if name.rpartition("/")[2] == last]
    suggestions += sorted(same_name, key=lambda name: (-_count_common_folders(path, name), name))
    if not suggestions:
        last_names = {name.rpartition("/")[2] for name in paths}
        similar_names = set(get_close_matches(last, last_names, n=_AT_MOST, cutoff=0.8))
        similar = [name for name in paths if name.rpartition("/")[2] in similar_names]
        suggestions = sorted(similar, key=lambda name: (-_count_common_folders(path, name), name))
    return list(dict.fromkeys(suggestions))[:_AT_MOST]


def _count_common_folders(first: str, second: str) -> int:
    return len(set(first.split("/")) & set(second.split("/")))
