"""Every page of the site: its address, and the diagrams, formulas and questions of its source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from notelab.page import reading
from tests.site.test_build import list_sources

_FENCE = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
_MATH = re.compile(r"\$\$.+?\$\$|(?<![\\$])\$(?=[^\s$]).+?(?<=[^\s\\])\$", re.DOTALL)


@dataclass(frozen=True, order=True)
class Place:
    """A page's address below the site's root, with the parts of its source."""

    address: str
    source: Path

    @cached_property
    def _text(self) -> str:
        return self.source.read_text("utf-8")

    @cached_property
    def _prose(self) -> str:
        return _CODE.sub("", _FENCE.sub("", self._text))

    @cached_property
    def diagrams(self) -> list[str]:
        """The texts of the diagrams."""
        return [diagram.text for diagram in reading.read(self._text).diagrams]

    @cached_property
    def formulas(self) -> int:
        return len(_MATH.findall(self._prose))

    @cached_property
    def questions(self) -> int:
        return len(re.findall(r"^\?\?\?\+? question", self._prose, re.MULTILINE))


@cache
def list_places() -> list[Place]:
    """Return every page of the built site."""
    pages = []
    for uri, source in list_sources().items():
        spanish = uri.name.endswith(".es.md")
        name = uri.name.removesuffix(".md").removesuffix(".es")
        folder = "" if uri.parent == Path() else f"{uri.parent.as_posix()}/"
        place = folder if name == "index" else f"{folder}{name}/"
        pages.append(Place(f"es/{place}" if spanish else place, source))
    return sorted(pages)
