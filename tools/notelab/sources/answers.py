"""What is asked of the providers, and what can be answered."""

import re
from typing import Literal

import msgspec

from notelab.errors import NotelabError

MAX_FILE_BYTES = 8 * 1024 * 1024  # of a cited file, uncompressed; a longer one is never read

Proof = Literal["git", "wheel"]
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")


class SourceError(NotelabError):
    """A source can't be asked, or has no such commit."""


class UnknownCommitError(SourceError):
    """A repository was asked, and it says that it has no such commit."""


class Wheel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published wheel: its file name, the SHA-256 of its RECORD, and its own.

    RECORD has the hash of every file in the wheel, so it vouches for any of them without the rest
    being read. `sha256` is the index's word for the whole, '' where an index gives none.
    """

    file: str
    record: str
    sha256: str = ""


class Source(msgspec.Struct, frozen=True):
    """A cited repository at its pin; `commit` is 40 hex digits, or '' where none is pinned yet.

    `known` is the wheel that the lock remembers; `own` the top of the lab's own repository, where
    that is the source: then there is no `url`, and nobody else is asked.
    """

    name: str
    url: str
    commit: str
    release: str | None = None
    wheel: str | None = None
    known: Wheel | None = None
    own: str = ""


class Found(msgspec.Struct, frozen=True):
    """A file's bytes, which are those of blob `blob`, and what proves that the commit has them.

    Where the blob id was known beforehand from the lock, proof "wheel" says no more than that the
    bytes are that blob's; the lock's own proof stands.
    """

    path: str
    blob: str
    data: bytes
    proof: Proof
    provider: str


class Absent(msgspec.Struct, frozen=True):
    """No such file: `definite` where a git tree at the pin says so, else a wheel lacks it.

    `ends` are the paths of that tree that end in this one.
    """

    path: str
    definite: bool
    near: list[str] = []
    reasons: list[str] = []
    ends: list[str] = []


class Unreachable(msgspec.Struct, frozen=True):
    """Nobody could deliver the file; one short line for each provider that was tried.

    `disputed` names a provider that has another file there than the blob id known from the lock.
    """

    path: str
    reasons: list[str]
    disputed: str = ""


class Offered(msgspec.Struct, frozen=True):
    """What a provider hands over; `proof` is None where it can't say that the commit has it."""

    data: bytes
    proof: Proof | None


class Refused(msgspec.Struct, frozen=True):
    """A provider's one-line reason; `final` where no other may answer instead (a symlink, say)."""

    reason: str
    final: bool = False


class TagCommit(msgspec.Struct, frozen=True):
    """The commit that a source's release tag names, '' where `who` has no such tag."""

    commit: str
    who: str


Wanted = dict[str, str | None]
Answers = dict[str, Offered | Absent | Refused]


def is_commit(text: str) -> bool:
    """Say whether `text` is a full commit id: 40 lower-case hex digits."""
    return bool(_COMMIT.match(text))


def path_problem(path: str) -> str:
    """Say why `path` can't name a file of a repository, or return ''."""
    if not path or len(path) > 1024 or _CONTROL.search(path):
        return "the path is empty, too long, or holds a backslash or a control character"
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in path.split("/")):
        return "the path must lead from the repository's root straight to a file"
    return ""
