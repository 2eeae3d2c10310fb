"""How a collective's metric is named: link, operation, ranks, size and mode."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"collective\.([a-z-]+)\.([a-z_]+)\.n(\d+)\.(\d+)\.(blocking|back-to-back)")
_SCALE = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


class Measured(NamedTuple):
    """What a metric's id says was measured."""

    link: str
    operation: str
    ranks: int
    size: int
    mode: str

    @property
    def id(self) -> str:
        """The metric's id."""
        return f"collective.{self.link}.{self.operation}.n{self.ranks}.{self.size}.{self.mode}"


def measured(name: str) -> Measured | None:
    """Return what an id names, or None where it is no collective's."""
    found = _NAME.fullmatch(name)
    if not found:
        return None
    link, operation, ranks, size, mode = found.groups()
    return Measured(link, operation, int(ranks), int(size), mode)


def size_name(size: int) -> str:
    """Return a size as "64 KiB"; what is no whole number of them, in bytes."""
    for name, scale in _SCALE:
        if size >= scale and size % scale == 0:
            return f"{size // scale} {name}"
    return f"{size} B"
