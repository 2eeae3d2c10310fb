"""`citations.lock`: what was proved of each citation, by hash, with no source text in it.

Version 2 is one JSON object::

    {"version": 2,
     "sources": {NAME: {"commit": C, "wheel": {"file": F, "record": R, "sha256": H},
         "files": {PATH: {"blob": B, "proof": "git" | "wheel"}}}},
     "citations": {NAME: {"PATH:L1-L9":
         {"anchors": [...], "pages": {PAGE: TIMES}, "sha256": H, "symbol": S}}}}

every source of the lab at its pin, cited or not: whether a citation without a source's name still
means what it meant depends on all of them. A citation that names its source has `NAME:` before its
path. All is sorted, one file and one citation a line, so that a merge shows what changed. A
citation that still stands at an older commit (work in progress of a repin) carries its own `commit`
beside `sha256`, and the source an `older` table beside `files`: of each such commit, its files.

Version 1 is the same without `wheel`; it is read as ever, and written anew as version 2. Without
`wheel`, the first wheel that the index has and that names the pin is believed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from notelab.errors import NotelabError, display_path
from notelab.lab.lab_file import read_at_most
from notelab.sources.answers import Wheel

LOCK_FILE = "citations.lock"
VERSION = 2
_READ = (1, 2)
_MAX_BYTES = 20_000_000
_FORMS = {
    "blob": re.compile(r"[0-9a-f]{40}"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
    "wheel's file name": re.compile(r"[A-Za-z0-9_.]+-[A-Za-z0-9_.!+]+(-[A-Za-z0-9_.]+){3,4}\.whl"),
}


class LockedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cited file: its git blob id, and who said that the commit holds it."""

    blob: str
    proof: Literal["git", "wheel"]


class LockedSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source at one commit, and the published wheel from which its files may be read."""

    commit: str
    files: dict[str, LockedFile] = {}
    wheel: Wheel | None = None
    older: dict[str, dict[str, LockedFile]] = {}


class LockedCitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A citation's lines by hash, the symbol around them, the names that anchor it in the notes.

    `pages` says how often each page cites it (an original's path from the lab; its translations
    must do the same): a citation that slips onto one that stands elsewhere is thus still seen.
    `commit` is the older one that it still stands at, '' where that is the pin.
    """

    sha256: str
    symbol: str
    anchors: list[str]
    pages: dict[str, int] = {}
    commit: str = ""


class Lock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole lock."""

    version: int = VERSION
    sources: dict[str, LockedSource] = {}
    citations: dict[str, dict[str, LockedCitation]] = {}

    def file(self, source: str, path: str, commit: str) -> LockedFile | None:
        """Return what is known of a file at `commit`; nothing where the lock is of another."""
        known = self.sources.get(source)
        return known.files.get(path) if known and known.commit == commit else None

    def wheel(self, source: str, commit: str, requirement: str) -> Wheel | None:
        """Return the wheel known for a source at `commit`, if it is one of `name==version`."""
        known = self.sources.get(source)
        if known is None or known.wheel is None or known.commit != commit:
            return None
        return known.wheel if _is_of(known.wheel.file, requirement) else None

    def behind(self, written: Mapping[str, str]) -> tuple[str, LockedCitation] | None:
        """Return what still stands at an older commit, of a citation's key by source."""
        for source, key in written.items():
            known = self.citation(source, key)
            if known and known.commit:
                return source, known
        return None

    def citation(self, source: str, key: str) -> LockedCitation | None:
        """Return what is known of a citation (`key` is its written form)."""
        return self.citations.get(source, {}).get(key)


def load(path: Path) -> Lock | None:
    """Read a lock; None where there is none.

    Raises:
        NotelabError: it is not a lock of this version.
    """
    where = display_path(path)
    if path.is_symlink():
        raise NotelabError(f"{where}: a lock must be a file, not a link to one")
    hint = "restore it from git; or delete it and run `shardbook lock` where git or a mirror is"
    data = read_at_most(_MAX_BYTES, path, hint)
    if data is None:
        return None
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version not in _READ:
            raise NotelabError(
                f"{where}: a lock of version {version}; this shardbook reads up to {VERSION}",
                hint="use the shardbook that wrote it, or a newer one",
            )
        lock = msgspec.json.decode(data, type=Lock)
    except (msgspec.DecodeError, ValueError, RecursionError) as fault:
        raise NotelabError(f"{where}: not a lock file: {fault}", hint=hint) from None
    for kind, value in _identities(lock):
        if not _FORMS[kind].fullmatch(value):
            raise NotelabError(f"{where}: {value[:70]!r} is no {kind}", hint=hint)
    return lock


class _Version(msgspec.Struct):
    version: int


def _identities(lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield what a lock says that must have a form, each with the form's name."""
    for source in lock.sources.values():
        yield from (("blob", file.blob) for file in source.files.values())
        if wheel := source.wheel:
            yield "wheel's file name", wheel.file
            yield "sha256", wheel.record
            yield from [("sha256", wheel.sha256)] if wheel.sha256 else []
    for known in lock.citations.values():
        yield from (("sha256", citation.sha256) for citation in known.values())


def _is_of(file: str, requirement: str) -> bool:
    """Tell whether a wheel's file name is of `name==version`; a local version is the same."""
    name, version = file.split("-")[:2]
    asked, _, pinned = requirement.partition("==")
    if _plain(name) != _plain(asked):
        return False
    if pinned in (version, version.partition("+")[0]):
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(f"=={pinned}").contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def dump(lock: Lock) -> str:
    """Write a lock as text, sorted, one file and one citation a line."""
    sources = {
        name: {
            "commit": source.commit,
            **({"wheel": msgspec.to_builtins(source.wheel)} if source.wheel else {}),
            "files": dict(sorted(source.files.items())),
            **({"older": _older(source)} if source.older else {}),
        }
        for name, source in sorted(lock.sources.items())
    }
    citations = {
        name: {key: known[key] for key in sorted(known, key=_place)}
        for name, known in sorted(lock.citations.items())
    }
    return _json({"version": VERSION, "sources": sources, "citations": citations}, "") + "\n"


def _older(source: LockedSource) -> dict[str, dict[str, LockedFile]]:
    older = sorted(source.older.items())
    return {commit: dict(sorted(files.items())) for commit, files in older}


def _json(value: object, indent: str) -> str:
    """Write a table one entry a line, what is known of a file or citation in its entry's."""
    if not isinstance(value, dict) or not value:
        said = msgspec.to_builtins(value)
        if isinstance(value, LockedCitation) and not value.commit:
            del said["commit"]
        return json.dumps(said, ensure_ascii=False, sort_keys=True)
    inner = indent + "  "
    rows = (
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {_json(entry, inner)}"
        for key, entry in value.items()
    )
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _place(key: str) -> tuple[str, list[int]]:
    path, _, lines = key.rpartition(":")
    return path, [int(number) for number in re.findall(r"\d+", lines)]
