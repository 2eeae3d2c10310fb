"""What the library asks of providers, and the answers that they can give."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
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
