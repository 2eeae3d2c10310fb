"""`lab.toml` as it is written: its tables, and reading them."""

import re
from codecs import BOM_UTF8
from pathlib import Path
from typing import Annotated

import msgspec

from notelab.cache import DiskCache, cache_key, get_or_compute
from notelab.code_version import code_version
from notelab.errors import NotelabError, did_you_mean, display_path
from notelab.regular_files import read_regular

_MAX_BYTES = 1_000_000

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    pass


class LabTable(_Table, frozen=True):
    """`[lab]`: what the lab is called, its languages (the first is the original), settings."""

    title: str
    languages: list[str] = msgspec.field(default_factory=lambda: ["en"])
    pages: list[str] = []
    sources_from: str = ""
    max_lines: Count = 40
    closing_heading: dict[str, str] = {}
    ignore: list[str] = []
    solution: list[str] = []
    in_progress: bool = False


class SourceTable(_Table, frozen=True):
    """`[sources.NAME]`: where a cited repository lives and which file holds its pin.

    In place of `url`, `path = "."` is the repository that the lab itself is in.
    """

    pin: str
    url: str = ""
    path: str = ""
    release: str = ""
    wheel: str = ""
    licence: str = ""


class NoteTable(_Table, frozen=True):
    """`[notes."FILE"]`: the stop conditions of one note; an absent one is not asked for."""

    sources: list[str] = []
    max_words: Count | None = None
    min_choices: Count | None = None
    choice_words: tuple[Count, Count] | None = None
    closing_mentions: dict[str, list[str]] = {}
    max_lines: Count | None = None
    ignore: list[str] = []


class ExpectedDiagram(_Table, frozen=True):
    """`[[diagrams."FILE".expect]]`: one diagram that the page must hold."""

    id: str
    type: str = ""
    labels: list[str] | dict[str, list[str]] = []
    max_lines: Count | None = None

    def labels_in(self, language: str) -> list[str]:
        """Return the labels that the diagram must mark in `language`, with repetitions."""
        if isinstance(self.labels, dict):
            return self.labels.get(language, [])
        return self.labels


class DiagramTable(_Table, frozen=True):
    """`[diagrams."FILE"]`: exactly the diagrams that the page must hold."""

    expect: list[ExpectedDiagram]


class LabFile(_Table, frozen=True):
    """A whole `lab.toml`."""

    lab: LabTable
    sources: dict[str, SourceTable] = {}
    notes: dict[str, NoteTable] = {}
    diagrams: dict[str, DiagramTable] = {}


def decode(path: Path, cache: DiskCache | None) -> LabFile:
    """Read one file; `cache` spares parsing it again while it is the same.

    Raises:
        NotelabError: it is missing or unreadable, is no TOML, or says what no table knows.
    """
    data = read_at_most(_MAX_BYTES, path)
    if data is None:
        hint = "a lab is a folder with a lab.toml"
        raise NotelabError(f"{display_path(path)}: no such lab file", hint=hint)
    key = cache_key(code_version(), data)
    return get_or_compute(cache or DiskCache(None), "lab", key, LabFile, lambda: _parse(path, data))


def read_at_most(most: int, path: Path, hint: str = "") -> bytes | None:
    """Return what a lab's file holds; None where there is none.

    Raises:
        NotelabError: it can't be read, or is larger than `most` bytes.
    """
    try:
        data = read_regular(path, most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        raise NotelabError(
            f"{display_path(path)}: cannot be read: {fault.strerror or fault}"
        ) from None
    if len(data) > most:
        raise NotelabError(f"{display_path(path)}: larger than {most:,} bytes; not read", hint=hint)
    return data


def _parse(path: Path, data: bytes) -> LabFile:
    try:
        return msgspec.toml.decode(data.removeprefix(BOM_UTF8), type=LabFile)
    except msgspec.ValidationError as fault:
        raise NotelabError(
            f"{display_path(path)}: {fault}", hint=_nearest_key(str(fault))
        ) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as fault:
        reason = " ".join(str(fault).split())
        raise NotelabError(f"{display_path(path)}: not valid TOML: {reason}") from None


# By their place in the file, as msgspec tells it but for what it puts between brackets.
_TABLES: dict[str, type[msgspec.Struct]] = {
    "$": LabFile,
    "$.lab": LabTable,
    "$.sources": SourceTable,
    "$.notes": NoteTable,
    "$.diagrams": DiagramTable,
    "$.diagrams.expect": ExpectedDiagram,
}


def _nearest_key(message: str) -> str:
    found = re.search(r"unknown field `(.+?)`(?: - at `(.+?)`)?$", message)
    table = _TABLES.get(re.sub(r"\[.*?\]", "", found[2] or "$")) if found else None
    if not found or not table:
        return ""
    known = [field.encode_name for field in msgspec.structs.fields(table)]
    keys = ", ".join(f"`{key}`" for key in known)
    return did_you_mean(found[1], known) or f"the keys known here: {keys}"
