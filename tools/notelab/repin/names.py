"""Names that vanished from, or appeared in, the whole tree of a source between two commits.

Only files that differ are read: a name's presence can change nowhere else. What stood in those
alone is then looked for in the rest of the other tree.
"""

import re
from collections.abc import Collection, Iterable
from functools import partial

import msgspec

from notelab.book.workbook import Bench
from notelab.cache import cache_key, get_or_compute
from notelab.code_version import code_version
from notelab.sources.answers import Source, SourceError
from notelab.sources.git.command import GitCommand
from notelab.sources.package import Package, UnreadableMemberError

_SPACED = re.sub(rb"\W", b" ", bytes(range(256)))
_WHOLE = "a whole clone is needed: not shallow, not partial"
_BATCH = 500  # blobs whose words are looked for at a time
_TEXT = re.compile(
    r"\.(?:pyi?|pyx|c|cc|cpp|cxx|cuh?|h|hpp|cmake|in|jinja|json|md|rst|sh|toml|txt|ya?ml)\Z"
)


class Changed(msgspec.Struct, frozen=True):
    """Of the names asked for, those that the old tree alone has, and those that the new alone."""

    vanished: frozenset[str]
    appeared: frozenset[str]


def changed(bench: Bench, old: Source, new: Source, names: Collection[str]) -> Changed:
    """Compare the trees of a source at two commits: in its clone, else in the two wheels.

    Neither ever changes: what this code once found is kept.

    Raises:
        SourceError: there is neither, or what there is can't be read.
    """
    asked = sorted(names)
    if git := bench.library.clone(old):
        key = cache_key(code_version("repin"), old.commit, new.commit, *asked)
        found = partial(in_clone, git, old.commit, new.commit, asked)
        return get_or_compute(bench.cache, "names", key, Changed, found)
    if old.wheel and new.wheel:
        packages = bench.library.package(old), bench.library.package(new)
        records = (f"{path}={row}" for one in packages for path, row in one.names.items())
        found = partial(in_packages, *packages, asked)
        key = cache_key(code_version("repin"), *records, "", *asked)
        return get_or_compute(bench.cache, "names", key, Changed, found)
    raise SourceError(
        f"{old.name}: which names vanished or appeared can't be asked: there is no clone, and no "
        "wheel of each of the two commits is known",
        hint=f"--mirror {old.name.upper()}=DIR names a clone on disk",
    )


def in_clone(git: GitCommand, old: str, new: str, names: Collection[str]) -> Changed:
    """Compare two commits of a clone.

    Raises:
        SourceError: it lacks one of them, or some of their files.
    """
    ran = git.run(
        "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new, timeout=300
    )
    if ran.status:
        raise SourceError(f"the two trees can't be compared: {ran.why()}", hint=_WHOLE)
    sides: tuple[set[str], set[str]] = (set(), set())
    for about in ran.out.decode("utf-8", "replace").split("\0")[::2]:
        fields = about.lstrip(":").split()
        for side in (0, 1) if fields else ():
            if fields[side].startswith("100"):
                sides[side].add(fields[2 + side])
    asked = {name.encode() for name in names}
    before, after = (_of_blobs(git, sorted(blobs), asked) for blobs in sides)
    left, came = before - after, after - before
    return Changed(
        _decoded(left - _grep(git, new, left)),
        _decoded(came - _grep(git, old, came)),
    )


def in_packages(old: Package, new: Package, names: Collection[str]) -> Changed:
    """Compare the text files of two releases, which hold part of the tree.

    Raises:
        SourceError: a file that differs can't be read.
    """
    asked = {name.encode() for name in names}
    same = {path for path, row in old.names.items() if new.names.get(path) == row}
    before, after = (_of_members(one, one.names.keys() - same, asked) for one in (old, new))
    # What no file that differs tells apart need not be looked for in those that don't.
    doubtful = before ^ after
    common = _of_members(old, same if doubtful else (), doubtful)
    return Changed(_decoded(before - after - common), _decoded(after - before - common))


def _of_blobs(git: GitCommand, blobs: list[str], asked: set[bytes]) -> set[bytes]:
    """Return which of the names stand in blobs."""
    found: set[bytes] = set()
    for start in range(0, len(blobs), _BATCH):
        some = "".join(f"{blob}\n" for blob in blobs[start : start + _BATCH]).encode()
        ran = git.run("cat-file", "--batch=%(rest)", stdin=some, timeout=300)
        lacking = None
        if b" missing\n" in ran.out:  # to look line by line takes far longer
            lacking = re.search(rb"^([0-9a-f]{40}) missing$", ran.out, re.MULTILINE)
        if ran.status or lacking:
            why = f"it lacks object {lacking[1][:12].decode()}" if lacking else ran.why()
            raise SourceError(
                f"the clone doesn't hold every file of both commits: {why}",
                hint=_WHOLE,
            )
        found |= asked & _words(ran.out)
    return found


def _grep(git: GitCommand, commit: str, names: set[bytes]) -> set[bytes]:
    """Return which of some names a whole tree holds."""
    if not names:
        return set()
    patterns = [part for name in sorted(names) for part in ("-e", name.decode())]
    ran = git.run("grep", "-I", "-w", "-F", "-o", "-h", *patterns, commit, timeout=300)
    if ran.status > 1:
        raise SourceError(f"the tree can't be searched: {ran.why()}")
    return names & set(ran.out.split())


def _of_members(package: Package, paths: Iterable[str], asked: set[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for path in package.in_order(filter(_TEXT.search, paths)):
        try:
            found |= asked & _words(package.read(path))
        except UnreadableMemberError as fault:
            raise SourceError(f"{package.who}: {path}: {fault}") from None
    return found


def _words(text: bytes) -> set[bytes]:
    return set(text.translate(_SPACED).split())


def _decoded(names: Iterable[bytes]) -> frozenset[str]:
    return frozenset(name.decode() for name in names)
