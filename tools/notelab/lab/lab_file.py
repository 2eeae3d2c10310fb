"""The tables of `lab.toml`, and how the file is read."""

import re
from codecs import BOM_UTF8
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from notelab.cache import CacheFile, cache_key, get_or_compute
from notelab.errors import NotelabError, did_you_mean, display_path
from notelab.files import read_regular

_MAX_BYTES = 1_000_000

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    pass


class LabTable(_Table, frozen=True):
    """`[lab]`: the lab's title, its languages (the first is the original's) and its settings."""

    title: str
    languages: list[str] = msgspec.field(default_factory=lambda: ["en"])
    pages: list[str] = []
    sources_from: str = ""
    max_lines: Count = 40
    closing_heading: dict[str, str] = {}
    ignore: list[str] = []
    solution: list[str] = []
    candidates: list[str] = []
    min_new_choices: Count | None = None
    before: list[str] = []
    in_progress: bool = False
    quotes: bool = False
    style: Literal["", "canonical"] = ""


class SourceTable(_Table, frozen=True):
    """`[sources.NAME]`: where a cited repository is, and which file holds its pin.

    With `path = "."` in place of `url`, the source is the repository that holds the lab.
    """

    pin: str
    url: str = ""
    path: str = ""
    release: str = ""
    wheel: str = ""
    licence: str = ""


class NoteTable(_Table, frozen=True):
    """`[notes."FILE"]`: the limits of one note; an absent limit is not checked."""

    sources: list[str] = []
    max_words: Count | None = None
    min_choices: Count | None = None
    choice_words: tuple[Count, Count] | None = None
    closing_mentions: dict[str, list[str]] = {}
    max_lines: Count | None = None
    ignore: list[str] = []


class ExpectedDiagram(_Table, frozen=True):
    """`[[diagrams."FILE".expect]]`: one diagram that the page must have."""

    id: str
    type: str = ""
    labels: list[str] | dict[str, list[str]] = []
    max_lines: Count | None = None

    def labels_in(self, language: str) -> list[str]:
        """Return the labels that the diagram must have in `language`, with repetitions."""
        if isinstance(self.labels, dict):
            return self.labels.get(language, [])
        return self.labels


class DiagramTable(_Table, frozen=True):
    """`[diagrams."FILE"]`: all diagrams that the page must have, and no others."""

    expect: list[ExpectedDiagram]


class LabFile(_Table, frozen=True):
    """A whole `lab.toml`."""

    lab: LabTable
    sources: dict[str, SourceTable] = {}
    notes: dict[str, NoteTable] = {}
    diagrams: dict[str, DiagramTable] = {}


def decode(path: Path, cache: CacheFile | None = None) -> LabFile:
    """Read a lab file.

    Raises:
        NotelabError: the file is missing or unreadable, is not TOML, or has an unknown key.
    """
    data = read_limited(_MAX_BYTES, path)
    if data is None:
        hint = "a lab is a folder with a lab.toml"
        raise NotelabError(f"{display_path(path)}: no such lab file", hint=hint)
    parse = partial(msgspec.toml.decode, data.removeprefix(BOM_UTF8), type=LabFile)
    try:
        return get_or_compute(cache or CacheFile(None), "lab", cache_key(data), LabFile, parse)
    except msgspec.ValidationError as fault:
        raise NotelabError(
            f"{display_path(path)}: {fault}", hint=_suggest_key(str(fault))
        ) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as fault:
        reason = " ".join(str(fault).split())
        raise NotelabError(f"{display_path(path)}: not valid TOML: {reason}") from None


def read_limited(max_bytes: int, path: Path, hint: str = "") -> bytes | None:
    """Return the content of a lab's file, or None if there is no file.

    Raises:
        NotelabError: the file cannot be read, or is larger than `max_bytes`.
    """
    try:
        data = read_regular(path, max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        raise NotelabError(
            f"{display_path(path)}: cannot be read: {fault.strerror or fault}"
        ) from None
    if len(data) > max_bytes:
        raise NotelabError(
            f"{display_path(path)}: larger than {max_bytes:,} bytes; not read", hint=hint
        )
    return data


# The tables by their path in the file, as msgspec's messages name it without the brackets.
_TABLES: dict[str, type[msgspec.Struct]] = {
    "$": LabFile,
    "$.lab": LabTable,
    "$.sources": SourceTable,
    "$.notes": NoteTable,
    "$.diagrams": DiagramTable,
    "$.diagrams.expect": ExpectedDiagram,
}


def _suggest_key(message: str) -> str:
    match = re.search(r"unknown field `(.+?)`(?: - at `(.+?)`)?$", message)
    table = _TABLES.get(re.sub(r"\[.*?\]", "", match[2] or "$")) if match else None
    if not match or not table:
        return ""
    names = [field.encode_name for field in msgspec.structs.fields(table)]
    known_keys = ", ".join(f"`{key}`" for key in names)
    return did_you_mean(match[1], names) or f"the keys known here: {known_keys}"
