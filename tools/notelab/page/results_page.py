"""Results pages: places with an `<a id>`, a value to quote for each, and the pages' inputs.

A row is a line with `<a id="ROW"></a>` and exactly one bold text, its value. A generated page, of
results or not, opens with comments that name the SHA-256 of each input and of the page itself::

    <!-- generated from results/h200.json sha256:… -->
    <!-- this page without this line sha256:… -->

If an input is a CSV with the columns `id` and `formatted`, then the values come from there, and the
page holds only the places that the links lead to: an id's dots are dashes in its place's name.
"""

import re
from hashlib import sha256
from io import StringIO
from pathlib import Path

import msgspec

from notelab.files import read_regular
from notelab.lab import pages

_ROW = re.compile(r"""<a\s+id=["']([A-Za-z0-9_.-]+)["']\s*>""")
_MOST = 1 << 30  # bytes of an input: none of a page that people read is longer
_VALUE = re.compile(r"\*\*(.+?)\*\*")
INPUT = re.compile(r"^<!--\s*generated from (\S+) sha256:([0-9a-f]{64})\s*-->\s*$")
SEAL = re.compile(r"^<!--\s*this page without this line sha256:([0-9a-f]{64})\s*-->\s*$")
_FIRST_COMMENT = re.compile(
    r"\A(?:---\n.*?^---\n)?\s*<!--\s*generated from \S", re.DOTALL | re.MULTILINE
)


class Results(msgspec.Struct):
    """What a results page holds.

    Args:
        values: the values of each place by its name; a correct page has one value each.
        elsewhere: what only a CSV has, and no place on the page: its file, by the place's name.
        made_from: the inputs that the page names, each with its SHA-256 and its line.
        stale: the inputs that have changed since, each with its line.
        generated: whether the page says what it was generated from.
        edited: whether the text differs from the one that was generated.
        problem: why the page cannot be read, or ''.
    """

    values: dict[str, list[str]] = {}
    elsewhere: dict[str, str] = {}
    made_from: list[tuple[str, str, int]] = []
    stale: list[tuple[str, int]] = []
    generated: bool = False
    edited: bool = False
    problem: str = ""


def read(path: Path) -> Results:
    """Read a results page; problems are in the result, and no error is raised."""
    text = pages.read(path)
    if text.problem:
        return Results(problem=text.problem)
    return parse(text.text, path.parent)


def parse(text: str, folder: Path) -> Results:
    """Return the results in the text of a page in `folder`."""
    results = _parse(text)
    for name, digest, row in results.made_from:
        data = _read_input(folder, name)
        if data is None or sha256(data).hexdigest() != digest:
            results.stale.append((name, row))
        if data is not None and name.endswith(".csv"):
            _take_values(results, name, data)
    return results


def _take_values(results: Results, name: str, data: bytes) -> None:
    """Give the page's places the values of a CSV; a file that is no such table changes nothing."""
    import csv  # most checks read no CSV

    table: dict[str, list[str]] = {}
    try:
        for line in csv.DictReader(StringIO(data.decode("utf-8"), newline=""), restval=""):
            table.setdefault(line["id"].replace(".", "-"), []).append(line["formatted"])
    except (UnicodeDecodeError, csv.Error, KeyError):
        return
    for place, values in table.items():
        if place in results.values:
            results.values[place] = values
        else:
            results.elsewhere[place] = name


def _parse(text: str) -> Results:
    values: dict[str, list[str]] = {}
    made_from, seals, other_lines = [], [], []
    for row, line in enumerate(text.split("\n"), start=1):
        if "<a" in line:
            for row_anchor in _ROW.finditer(line):
                values.setdefault(row_anchor[1], []).extend(_VALUE.findall(line))
        comment = line.startswith("<!--")
        if comment and (seal_match := SEAL.match(line)):
            seals.append(seal_match[1])
        else:
            other_lines.append(line)
        if comment and (input_match := INPUT.match(line)):
            made_from.append((input_match[1], input_match[2], row))
    generated = is_generated(text)
    edited = generated and seals != [sha256("\n".join(other_lines).encode()).hexdigest()]
    return Results(values, made_from=made_from, generated=generated, edited=edited)


def input_files(path: Path) -> set[Path]:
    """Return the files that a page says it was generated from; none if it says nothing."""
    text = pages.read(path).text
    if not is_generated(text):
        return set()
    names = (input_match[1] for line in text.split("\n") if (input_match := INPUT.match(line)))
    return {(path.parent / name).resolve() for name in names if "\0" not in name}


def is_generated(text: str) -> bool:
    """Return whether a page opens by naming what it was generated from."""
    return "generated from" in text and _FIRST_COMMENT.match(text) is not None


def _read_input(folder: Path, name: str) -> bytes | None:
    """Return an input's content, or None if it can't be read or is outside of the folder."""
    try:
        path = (folder / name).resolve()
        inside = path.is_relative_to(folder.resolve())
        return read_regular(path, _MOST) if inside else None
    except (OSError, ValueError):  # a NUL in the name is a ValueError
        return None
