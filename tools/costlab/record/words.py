"""What is said to a reader: the words of words.toml in both languages, and tables on the terminal.

A table is as wide as the terminal, and wide enough where there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from rich.console import Console


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same said in both languages."""

    en: str
    es: str

    def of(self, language: str) -> str:
        """Return them in "en" or "es"."""
        return self.es if language == "es" else self.en


def texts(page: str) -> dict[str, Words]:
    """Return all that words.toml has on a page, by name."""
    return _file()[page]


def words(name: str) -> Words:
    """Return what words.toml has under "page.name"."""
    page, _, entry = name.partition(".")
    return _file()[page][entry]


def say(name: str, language: str) -> str:
    """Return what words.toml has under "page.name", in "en" or "es"."""
    return words(name).of(language)


@cache
def _file() -> dict[str, dict[str, Words]]:
    file = Path(__file__).parents[1] / "words.toml"
    return msgspec.toml.decode(file.read_bytes(), type=dict[str, dict[str, Words]])


PIPED = 140  # columns


def console() -> Console:
    """Return standard output; a pipe or a file has no width of its own, and wraps nothing."""
    from rich.console import Console  # what prints nothing needs none

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED)


def tabulate(
    heads: Sequence[str], align: str, rows: Iterable[Sequence[str]], *, title: str = ""
) -> None:
    """Print a table; `align` has a `<` or a `>` for each column."""
    from rich.table import Table

    table = Table(
        box=None, padding=(0, 2, 0, 0), pad_edge=False,
        title=f"\n[bold]{title}[/]" if title else None, title_justify="left",
    )  # fmt: skip
    for head, side in zip(heads, align, strict=True):
        table.add_column(head, justify="right" if side == ">" else "left")
    for row in rows:
        table.add_row(*row)
    console().print(table)
