"""What is printed: tables as wide as the terminal, and wide enough where there is none."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

PIPED = 140  # columns


def console() -> Console:
    """Return standard output; a pipe or a file has no width of its own, and wraps nothing."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED)


def tabulate(
    heads: Sequence[str], align: str, rows: Iterable[Sequence[str]], *, title: str = ""
) -> None:
    """Print a table; `align` has a `<` or a `>` for each column."""
    table = Table(
        box=None, padding=(0, 2, 0, 0), pad_edge=False,
        title=f"\n[bold]{title}[/]" if title else None, title_justify="left",
    )  # fmt: skip
    for head, side in zip(heads, align, strict=True):
        table.add_column(head, justify="right" if side == ">" else "left")
    for row in rows:
        table.add_row(*row)
    console().print(table)
