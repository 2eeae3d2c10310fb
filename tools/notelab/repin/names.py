"""Finds names that vanished from or appeared in the whole tree of a source between two commits.

Only files that differ are read first, because a name's presence can change nowhere else. Names
found in only one version of these files are then searched in the rest of the other tree.
"""

import re
from collections.abc import Collection, Iterable
from functools import partial

import msgspec

from notelab.book.workbook import CheckSession
from notelab.cache import cache_key, code_version, get_or_compute
from notelab.sources.answers import Source, SourceError
from notelab.sources.git.git_command import GitCommand
from notelab.sources.package import Package, UnreadableMemberError

_SPACED = re.sub(rb"\W", b" ", bytes(range(256)))
_WHOLE = "a whole clone is needed: not shallow, not partial"
_BATCH = 500  # blobs per call of git
_TEXT = re.compile(
    r"\.(?:pyi?|pyx|c|cc|cpp|cxx|cuh?|h|hpp|cmake|in|jinja|json|md|rst|sh|toml|txt|ya?ml)\Z"
)


class ChangedNames(msgspec.Struct, frozen=True):
    """The requested names that only the old tree has, and those that only the new tree has."""

    vanished: frozenset[str]
    appeared: frozenset[str]


def compare_names(
    bench: CheckSession, old: Source, new: Source, names: Collection[str]
) -> ChangedNames:
    """Compare the trees of a source at two commits: in its clone, else in two wheels.

    The trees never change, so the result is cached.

    Raises:
        SourceError: there is neither a clone nor two wheels, or they cannot be read.
    """
    sorted_names = sorted(names)
    if git := bench.library.clone(old):
        key = cache_key(code_version("repin"), old.commit, new.commit, *sorted_names)
        compute = partial(compare_in_clone, git, old.commit, new.commit, sorted_names)
        return get_or_compute(bench.cache, "names", key, ChangedNames, compute)
    if old.wheel and new.wheel:
        packages = bench.library.package(old), bench.library.package(new)
        records = (f"{path}={row}" for package in packages for path, row in package.names.items())
        compute = partial(compare_in_packages, *packages, sorted_names)
        key = cache_key(code_version("repin"), *records, "", *sorted_names)
        return get_or_compute(bench.cache, "names", key, ChangedNames, compute)
    raise SourceError(
        f"{old.name}: can't say which names vanished or appeared: there is no clone, and "
        "no wheel is known for each of the two commits",
        hint=f"give a clone on disk: --mirror {old.name}=DIR",
    )


def compare_in_clone(git: GitCommand, old: str, new: str, names: Collection[str]) -> ChangedNames:
    """Compare two commits of a clone.

    Raises:
        SourceError: the clone lacks a commit or some of its files.
    """
    process = git.run(
        "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new, timeout=300
    )
    if process.status:
        raise SourceError(f"the two trees can't be compared: {process.why()}", hint=_WHOLE)
    sides: tuple[set[str], set[str]] = (set(), set())
    for change in process.out.decode("utf-8", "replace").split("\0")[::2]:
        fields = change.lstrip(":").split()
        for side in (0, 1) if fields else ():
            if fields[side].startswith("100"):
                sides[side].add(fields[2 + side])
    encoded_names = {name.encode() for name in names}
    in_old, in_new = (_find_in_blobs(git, sorted(blobs), encoded_names) for blobs in sides)
    vanished, appeared = in_old - in_new, in_new - in_old
    return ChangedNames(
        _decode(vanished - _find_in_tree(git, new, vanished)),
        _decode(appeared - _find_in_tree(git, old, appeared)),
    )


def compare_in_packages(old: Package, new: Package, names: Collection[str]) -> ChangedNames:
    """Compare the text files of two releases, which hold a part of the tree.

    Raises:
        SourceError: a file that differs cannot be read.
    """
    encoded_names = {name.encode() for name in names}
    same_paths = {path for path, row in old.names.items() if new.names.get(path) == row}
    in_old, in_new = (
        _find_in_members(package, package.names.keys() - same_paths, encoded_names)
        for package in (old, new)
    )
    # Only names that the differing files disagree on must be looked for in the common files.
    differing = in_old ^ in_new
    common = _find_in_members(old, same_paths if differing else (), differing)
    return ChangedNames(_decode(in_old - in_new - common), _decode(in_new - in_old - common))


def _find_in_blobs(git: GitCommand, blobs: list[str], names: set[bytes]) -> set[bytes]:
    """Return which of the names are in the blobs."""
    present: set[bytes] = set()
    for start in range(0, len(blobs), _BATCH):
        batch = "".join(f"{blob}\n" for blob in blobs[start : start + _BATCH]).encode()
        process = git.run("cat-file", "--batch=%(rest)", stdin=batch, timeout=300)
        missing = None
        if b" missing\n" in process.out:  # the search line by line takes far longer
            missing = re.search(rb"^([0-9a-f]{40}) missing$", process.out, re.MULTILINE)
        if process.status or missing:
            why = f"it lacks object {missing[1][:12].decode()}" if missing else process.why()
            raise SourceError(
                f"the clone doesn't hold every file of both commits: {why}",
                hint=_WHOLE,
            )
        present |= names & _split_words(process.out)
    return present


def _find_in_tree(git: GitCommand, commit: str, names: set[bytes]) -> set[bytes]:
    """Return which of the names are anywhere in a tree."""
    if not names:
        return set()
    patterns = [part for name in sorted(names) for part in ("-e", name.decode())]
    process = git.run("grep", "-I", "-w", "-F", "-o", "-h", *patterns, commit, timeout=300)
    if process.status > 1:
        raise SourceError(f"the tree can't be searched: {process.why()}")
    return names & set(process.out.split())


def _find_in_members(package: Package, paths: Iterable[str], names: set[bytes]) -> set[bytes]:
    present: set[bytes] = set()
    for path in package.in_order(filter(_TEXT.search, paths)):
        try:
            present |= names & _split_words(package.read(path))
        except UnreadableMemberError as fault:
            raise SourceError(f"{package.who}: {path}: {fault}") from None
    return present


def _split_words(text: bytes) -> set[bytes]:
    return set(text.translate(_SPACED).split())


def _decode(names: Iterable[bytes]) -> frozenset[str]:
    return frozenset(name.decode() for name in names)
