"""A results page: rows with an `<a id>` and one quotable value, and the inputs it was made from.

A row is one line that holds `<a id="ROW"></a>` and exactly one bold text, its value. A generated
page, of results or not, opens with comments that name its inputs by SHA-256, and itself::

    <!-- generated from results/h200.json sha256:… -->
    <!-- this page without this line sha256:… -->
"""

import re
from hashlib import sha256
from pathlib import Path

import msgspec

from notelab.cache import CacheFile, cache_key, get_or_compute
from notelab.lab import pages
from notelab.regular_files import read_regular

_ROW = re.compile(r"""<a\s+id=["']([A-Za-z0-9_.-]+)["']\s*>""")
_MOST = 1 << 30  # bytes of an input: none of a page that people read is longer
_VALUE = re.compile(r"\*\*(.+?)\*\*")
INPUT = re.compile(r"^<!--\s*generated from (\S+) sha256:([0-9a-f]{64})\s*-->\s*$")
SEAL = re.compile(r"^<!--\s*this page without this line sha256:([0-9a-f]{64})\s*-->\s*$")
_OPENING = re.compile(r"\A(?:---\n.*?^---\n)?\s*<!--\s*generated from \S", re.DOTALL | re.MULTILINE)


class Results(msgspec.Struct):
    """What a page holds.

    Args:
        values: of each row's id (one where the page is right).
        made_from: the inputs that it names, each with its SHA-256 and the line that says so.
        stale: those that are others now, each with its line.
        generated: whether it says what it was generated from.
        edited: whether it is another text than the one that was generated.
        problem: why it can't be read.
    """

    values: dict[str, list[str]] = {}
    made_from: list[tuple[str, str, int]] = []
    stale: list[tuple[str, int]] = []
    generated: bool = False
    edited: bool = False
    problem: str = ""


def read(path: Path, cache: CacheFile) -> Results:
    """Read a results page; what is wrong with it is in the answer, never raised."""
    text = pages.read(path)
    if text.problem:
        return Results(problem=text.problem)
    return of_text(text.text, path.parent, cache)


def of_text(text: str, folder: Path, cache: CacheFile) -> Results:
    """Read the text of a results page that lies in `folder`."""
    found = get_or_compute(cache, "results", cache_key(text), Results, lambda: _said(text))
    found.stale = [(name, row) for name, sha, row in found.made_from if _differs(folder, name, sha)]
    return found


def _said(text: str) -> Results:
    values: dict[str, list[str]] = {}
    made_from, seals, rest = [], [], []
    for row, line in enumerate(text.split("\n"), start=1):
        if "<a" in line:
            for found in _ROW.finditer(line):
                values.setdefault(found[1], []).extend(_VALUE.findall(line))
        comment = line.startswith("<!--")
        if comment and (seal := SEAL.match(line)):
            seals.append(seal[1])
        else:
            rest.append(line)
        if comment and (made := INPUT.match(line)):
            made_from.append((made[1], made[2], row))
    generated = is_generated(text)
    edited = generated and seals != [sha256("\n".join(rest).encode()).hexdigest()]
    return Results(values, made_from, generated=generated, edited=edited)


def inputs(path: Path) -> set[Path]:
    """Return the files that a page says it was generated from; none for one that was not."""
    text = pages.read(path).text
    if not is_generated(text):
        return set()
    named = (made[1] for line in text.split("\n") if (made := INPUT.match(line)))
    return {(path.parent / name).resolve() for name in named if "\0" not in name}


def is_generated(text: str) -> bool:
    """Tell whether a page opens by saying what it was generated from."""
    return "generated from" in text and _OPENING.match(text) is not None


def _differs(folder: Path, name: str, digest: str) -> bool:
    try:
        source = (folder / name).resolve()
        if not source.is_relative_to(folder.resolve()):
            return True
        return sha256(read_regular(source, _MOST)).hexdigest() != digest
    except (OSError, ValueError):  # a NUL in the name is a ValueError
        return True
