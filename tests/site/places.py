"""Every page of the site: where it stands, and what its source has for a reader."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from notelab.page import reading
from tests.site.test_build import sources

_FENCE = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
_MATH = re.compile(r"\$\$.+?\$\$|(?<![\\$])\$(?=[^\s$]).+?(?<=[^\s\\])\$", re.DOTALL)


class Place(NamedTuple):
    """A page's address below the site's root, and what its source has for a reader.

    `diagrams` are their texts.
    """

    address: str
    diagrams: list[str]
    formulas: int
    questions: int


@cache
def places() -> list[Place]:
    """Return every page of the built site."""
    found = []
    for uri, source in sources().items():
        spanish = uri.name.endswith(".es.md")
        name = uri.name.removesuffix(".md").removesuffix(".es")
        folder = "" if uri.parent == Path() else f"{uri.parent.as_posix()}/"
        place = folder if name == "index" else f"{folder}{name}/"
        text = source.read_text()
        prose = _CODE.sub("", _FENCE.sub("", text))
        found.append(
            Place(
                f"es/{place}" if spanish else place,
                [diagram.text for diagram in reading.read(text).diagrams],
                len(_MATH.findall(prose)),
                len(re.findall(r"^\?\?\?\+? question", prose, re.MULTILINE)),
            )
        )
    return sorted(found)
