"""`citations.lock`: the proof of each citation, as hashes; it holds no source text.

Version 2 is one JSON object::

    {"version": 2,
     "sources": {NAME: {"commit": C, "wheel": {"file": F, "record": R, "sha256": H},
         "files": {PATH: {"blob": B, "proof": "git" | "wheel"}}}},
     "citations": {NAME: {"PATH:L1-L9":
         {"anchors": [...], "pages": {PAGE: TIMES}, "sha256": H, "symbol": S}}}}

It lists every source of the lab at its pin, cited or not, because the meaning of a citation without
a source's name depends on all sources. The key of a citation with a source's name begins with
`NAME:`. Everything is sorted, with one file or citation per line, so that a merge shows what
changed. A citation that a repin left at an older commit has its own `commit` beside `sha256`. Its
source then has a table `older` beside `files`, with the files of each such commit.

Version 1 has no `wheel` and is otherwise the same; it is still read, and written as version 2.
Without `wheel`, the first wheel in the index that names the pin is used.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from notelab.errors import NotelabError, display_path
from notelab.lab.lab_file import read_limited
from notelab.sources.answers import Wheel

LOCK_FILE = "citations.lock"
VERSION = 2
_READABLE_VERSIONS = (1, 2)
_MAX_BYTES = 20_000_000
_PATTERNS = {
    "blob": re.compile(r"[0-9a-f]{40}"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
    "wheel's file name": re.compile(r"[A-Za-z0-9_.]+-[A-Za-z0-9_.!+]+(-[A-Za-z0-9_.]+){3,4}\.whl"),
}


class LockedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cited file: its git blob id, and which kind of provider proved that the commit holds it."""

    blob: str
    proof: Literal["git", "wheel"]


class LockedSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source at one commit, and the published wheel from which its files can be read."""

    commit: str
    files: dict[str, LockedFile] = {}
    wheel: Wheel | None = None
    older: dict[str, dict[str, LockedFile]] = {}


class LockedCitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A citation: the hash of its lines, their symbol, and the names that anchor it in the notes.

    `pages` says how often each page has the citation. A page is the original's path from the lab;
    its translations must cite it as often. A citation that changes by mistake into one from another
    page is therefore still noticed. `commit` is the older commit of the lines, or '' if it is the
    pin.
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
        """Return the entry of a file, or None if the lock has none at `commit`."""
        locked = self.sources.get(source)
        return locked.files.get(path) if locked and locked.commit == commit else None

    def wheel(self, source: str, commit: str, requirement: str) -> Wheel | None:
        """Return the wheel of a source at `commit`, if it is a wheel of `name==version`."""
        locked = self.sources.get(source)
        if locked is None or locked.wheel is None or locked.commit != commit:
            return None
        return locked.wheel if _is_wheel_of(locked.wheel.file, requirement) else None

    def find_outdated(self, keys: Mapping[str, str]) -> tuple[str, LockedCitation] | None:
        """Return the source and entry of a citation that is still at an older commit, else None.

        `keys` maps each source to the citation's key in that source.
        """
        for source, key in keys.items():
            locked = self.citation(source, key)
            if locked and locked.commit:
                return source, locked
        return None

    def citation(self, source: str, key: str) -> LockedCitation | None:
        """Return the entry of a citation; `key` is its written form."""
        return self.citations.get(source, {}).get(key)


def load(path: Path) -> Lock | None:
    """Read a lock; return None if there is none.

    Raises:
        NotelabError: the file is not a lock of a version that is read here.
    """
    where = display_path(path)
    if path.is_symlink():
        raise NotelabError(f"{where}: a lock must be a file, not a link to one")
    hint = (
        "restore it from git, or delete it and run `shardbook lock` where git or a mirror can be "
        "reached"
    )
    data = read_limited(_MAX_BYTES, path, hint)
    if data is None:
        return None
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version not in _READABLE_VERSIONS:
            raise NotelabError(
                f"{where}: a lock of version {version}; this shardbook reads up to {VERSION}",
                hint="use the shardbook that wrote it, or a newer one",
            )
        lock = msgspec.json.decode(data, type=Lock)
    except (msgspec.DecodeError, ValueError, RecursionError) as fault:
        raise NotelabError(f"{where}: not a lock file: {fault}", hint=hint) from None
    for kind, value in _list_identifiers(lock):
        if not _PATTERNS[kind].fullmatch(value):
            raise NotelabError(f"{where}: {value[:70]!r} is no {kind}", hint=hint)
    return lock


class _Version(msgspec.Struct):
    version: int


def _list_identifiers(lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield each value of a lock that must match a pattern, with the pattern's name."""
    for source in lock.sources.values():
        yield from (("blob", file.blob) for file in source.files.values())
        if wheel := source.wheel:
            yield "wheel's file name", wheel.file
            yield "sha256", wheel.record
            yield from [("sha256", wheel.sha256)] if wheel.sha256 else []
    for citations in lock.citations.values():
        yield from (("sha256", citation.sha256) for citation in citations.values())


def _is_wheel_of(file: str, requirement: str) -> bool:
    """Return whether a wheel's file name matches `name==version`; a local version may follow."""
    name, version = file.split("-")[:2]
    required_name, _, required_version = requirement.partition("==")
    if _normalize_name(name) != _normalize_name(required_name):
        return False
    if required_version in (version, version.partition("+")[0]):
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(f"=={required_version}").contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def dump(lock: Lock) -> str:
    """Return a lock as text: sorted, with one file or citation per line."""
    sources = {
        name: {
            "commit": source.commit,
            **({"wheel": msgspec.to_builtins(source.wheel)} if source.wheel else {}),
            "files": dict(sorted(source.files.items())),
            **({"older": _sort_older(source)} if source.older else {}),
        }
        for name, source in sorted(lock.sources.items())
    }
    citations = {
        name: {key: locked[key] for key in sorted(locked, key=_citation_order)}
        for name, locked in sorted(lock.citations.items())
    }
    return (
        _format_table({"version": VERSION, "sources": sources, "citations": citations}, "") + "\n"
    )


def _sort_older(source: LockedSource) -> dict[str, dict[str, LockedFile]]:
    older = sorted(source.older.items())
    return {commit: dict(sorted(files.items())) for commit, files in older}


def _format_table(value: object, indent: str) -> str:
    """Return a table as JSON, one entry per line, each file's or citation's data on that line."""
    import json  # a check only reads

    if not isinstance(value, dict) or not value:
        entry_data = msgspec.to_builtins(value)
        if isinstance(value, LockedCitation) and not value.commit:
            del entry_data["commit"]
        return json.dumps(entry_data, ensure_ascii=False, sort_keys=True)
    inner = indent + "  "
    rows = (
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {_format_table(entry, inner)}"
        for key, entry in value.items()
    )
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _citation_order(key: str) -> tuple[str, list[int]]:
    path, _, lines = key.rpartition(":")
    return path, [int(number) for number in re.findall(r"\d+", lines)]
