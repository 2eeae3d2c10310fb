"""What the library asks of providers, and the answers that they can give."""

import re
from typing import Literal

import msgspec

from notelab.errors import NotelabError

MAX_FILE_BYTES = 8 * 1024 * 1024  # of a cited file, uncompressed; longer files are not read

WORKTREE = "0" * 40  # in place of a commit: the working tree, as git's own blame writes it
Proof = Literal["git", "wheel"]
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_LONGEST_POINTER = 1024  # bytes, as Git LFS defines it
_POINTERS = {
    "Git LFS": re.compile(
        rb"version https?://[\w.-]+/(?:spec/)?v\d+\n(?:[a-z0-9.-]+ [^\n]*\n)*?"
        rb"oid sha256:[0-9a-f]{64}\n"
        rb"(?:[a-z0-9.-]+ [^\n]*\n?)*\Z"
    ),
    "git-annex": re.compile(rb"/annex/objects/[^\n]+\n?\Z"),
}


class SourceError(NotelabError):
    """A source can't be read, or it has no such commit."""


class UnknownCommitError(SourceError):
    """A repository answered that it has no such commit."""


class Wheel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published wheel: its file name, the SHA-256 of its RECORD, and the wheel's own SHA-256.

    RECORD lists the hash of every file in the wheel, so it proves any of them although the rest is
    never read. `sha256` is what the index says of the whole wheel, or '' if it gives no hash.
    """

    file: str
    record: str
    sha256: str = ""


class Source(msgspec.Struct, frozen=True):
    """A cited repository at its pin; `commit` has 40 hex digits, or is '' if nothing is pinned.

    `known_wheel` is the wheel that the lock records. If the source is the lab's own repository,
    `local_repository` is its top folder; then `url` is empty and no other provider is asked.
    """

    name: str
    url: str
    commit: str
    release: str | None = None
    wheel: str | None = None
    known_wheel: Wheel | None = None
    local_repository: str = ""


class FoundFile(msgspec.Struct, frozen=True):
    """A file's bytes, their blob id, and what proves that the commit holds them.

    If the lock already had the blob id, proof "wheel" only says that the bytes have that id; the
    lock's own proof remains valid.
    """

    path: str
    blob: str
    data: bytes
    proof: Proof
    provider: str


class Absent(msgspec.Struct, frozen=True):
    """There is no such file. `definite` says that a git tree at the pin lacks it, not only a wheel.

    `suggestions` are paths close to this one; `ends` are the paths of the tree that end in it;
    `has_kin` is false if the tree has no file with the same ending, or the same name without one.
    """

    path: str
    definite: bool
    suggestions: list[str] = []
    reasons: list[str] = []
    ends: list[str] = []
    has_kin: bool = True


class Unreachable(msgspec.Struct, frozen=True):
    """No provider delivered the file; `reasons` has a short line for each that was tried.

    `disputed` names a provider whose file has another blob id than the lock records.
    """

    path: str
    reasons: list[str]
    disputed: str = ""


class Offered(msgspec.Struct, frozen=True):
    """Bytes from a provider; `proof` is None if it can't prove that the commit holds them."""

    data: bytes
    proof: Proof | None


class Refused(msgspec.Struct, frozen=True):
    """A provider's reason in one line; if `final`, no other provider is asked (for a symlink)."""

    reason: str
    final: bool = False


class TagCommit(msgspec.Struct, frozen=True):
    """The commit that a source's release tag names, or '' if `who` has no such tag."""

    commit: str
    who: str


Wanted = dict[str, str | None]
Answers = dict[str, Offered | Absent | Refused]


def is_commit(text: str) -> bool:
    """Tell whether `text` is a full commit id: 40 lower-case hex digits."""
    return bool(_COMMIT.match(text))


def pointer_kind(data: bytes) -> str:
    """Return which program wrote `data` in the place of a file's contents; '' for a whole file.

    git holds such a pointer if the contents are stored elsewhere.
    """
    if len(data) > _LONGEST_POINTER:
        return ""
    return next((kind for kind, form in _POINTERS.items() if form.match(data)), "")
