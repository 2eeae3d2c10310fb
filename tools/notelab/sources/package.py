"""A published package as a provider: it holds some files of a repository, at the same paths."""

import ast
import csv
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256

from notelab.lines import split_lines
from notelab.sources.answers import Absent, Answers, Offered, Proof, Refused, Source, Wanted
from notelab.sources.suggest_paths import suggest_paths

_VERSION_FILE = re.compile(r"^[^/]+/version\.py$")


class UnreadableMemberError(Exception):
    """A file of a package can't be read; the message says why in one line."""


class Package:
    """A package, packed or installed; `names` maps each file in its RECORD to the hash there."""

    forged = "doesn't match its hash in RECORD"

    def __init__(self, who: str, record: str) -> None:
        """Parse RECORD; `who` is how reasons name the package."""
        self.who = who
        rows = csv.reader(split_lines(record))
        self.names = {row[0]: row[1] for row in rows if len(row) >= 2}

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return some of its files in the order in which reading them is fastest."""
        return sorted(names)

    def read(self, name: str) -> bytes:
        """Return a file's bytes; raise UnreadableMemberError if it differs from RECORD."""
        data = self.bytes_of(name)
        digest = urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
        if self.names[name] != f"sha256={digest}":
            raise UnreadableMemberError(self.forged)
        return data

    def bytes_of(self, name: str) -> bytes:
        """Return a file's bytes without comparing them, or raise UnreadableMemberError."""
        raise NotImplementedError


def offer(package: Package, source: Source, wanted: Wanted) -> Answers:
    """Return what the package holds of `wanted`.

    A package proves a file whose blob id is unknown only if it names the commit that it was built
    from and that commit is the pin.
    """
    has_unknown = None in wanted.values()
    proof: Proof | None = "wheel" if has_unknown and source.commit in _commits(package) else None
    answers: Answers = {}
    for path in wanted:
        if path not in package.names:
            answers[path] = make_absent(package.who, path, package.names, wanted[path])
            continue
        try:
            answers[path] = Offered(package.read(path), proof)
        except UnreadableMemberError as fault:
            answers[path] = Refused(f"{package.who}: {path}: {fault}")
    return answers


def make_absent(who: str, path: str, names: Collection[str], blob: str | None) -> Absent:
    """Return that a package lacks a path, with suggestions if the lock doesn't know the path."""
    suggestions = [] if blob else suggest_paths(path, names)
    return Absent(
        path, definite=False, suggestions=suggestions, reasons=[f"{who}: holds no such file"]
    )


def commit_of(package: Package) -> str:
    """Return the commit that a package says it was built from, or ''."""
    return next(_commits(package), "")


def _commits(package: Package) -> Iterator[str]:
    for name in filter(_VERSION_FILE.match, package.names):
        try:
            commit = built_from(package.read(name))
        except UnreadableMemberError:
            continue
        if commit:
            yield commit


def built_from(version_file: bytes) -> str | None:
    """Return the `git_version` that a version.py assigns; the file is parsed and never run."""
    try:
        body = ast.parse(version_file).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for statement in body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        assigns_version = any(isinstance(to, ast.Name) and to.id == "git_version" for to in targets)
        if assigns_version and isinstance(statement.value, ast.Constant):
            return statement.value.value if isinstance(statement.value.value, str) else None
    return None
