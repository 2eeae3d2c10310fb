"""A published package as a provider: some of a repository's files, at the same paths."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from notelab.sources.answers import Absent, Answers, Offered, Proof, Refused, Source, Wanted
from notelab.sources.near import nearest

_VERSION_FILE = re.compile(r"^[^/]+/version\.py$")


class UnreadableMemberError(Exception):
    """A package's file can't be read; the message says why, in a line."""


class Package(Protocol):
    """A package, unpacked or not."""

    who: str

    def names(self) -> Mapping[str, str]:
        """Return the paths of its files, each with its hash as RECORD writes it."""
        ...

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return some of its files in the order in which they are read fastest."""
        ...

    def read(self, name: str) -> bytes:
        """Return a file's bytes, or raise UnreadableMemberError."""
        ...


def offer(package: Package, source: Source, wanted: Wanted) -> Answers:
    """Return what the package has of `wanted`.

    A package answers for a file that nobody knows yet only if it names the commit it was built
    from, and that is the pin.
    """
    names = package.names()
    proof = _proof(package, names, source.commit) if None in wanted.values() else None
    answers: Answers = {}
    for path in wanted:
        if path not in names:
            answers[path] = absent(package.who, path, names, wanted[path])
            continue
        try:
            answers[path] = Offered(package.read(path), proof)
        except UnreadableMemberError as fault:
            answers[path] = Refused(f"{package.who}: {path}: {fault}")
    return answers


def absent(who: str, path: str, names: Collection[str], blob: str | None) -> Absent:
    """Return that a package lacks a path; with the nearest it has, if nobody knows the path."""
    near = [] if blob else nearest(path, names)
    return Absent(path, definite=False, near=near, reasons=[f"{who}: holds no such file"])


def _proof(package: Package, names: Collection[str], commit: str) -> Proof | None:
    return "wheel" if commit in _commits(package, names) else None


def commit_of(package: Package) -> str:
    """Return the commit that a package says it was built from, or ''."""
    return next(_commits(package, package.names()), "")


def _commits(package: Package, names: Collection[str]) -> Iterator[str]:
    for name in names:
        if _VERSION_FILE.match(name):
            try:
                commit = built_from(package.read(name))
            except UnreadableMemberError:
                continue
            if commit:
                yield commit


def built_from(version_file: bytes) -> str | None:
    """Return the `git_version` that a version.py assigns, read without running it."""
    try:
        body = ast.parse(version_file).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for statement in body:
        if isinstance(statement, ast.Assign):
            targets: list[ast.expr] = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        named = any(isinstance(to, ast.Name) and to.id == "git_version" for to in targets)
        if named and isinstance(statement.value, ast.Constant):
            return statement.value.value if isinstance(statement.value.value, str) else None
    return None
