"""Where tables are printed: as wide as the terminal, and wide enough where there is none."""

import sys

from rich.console import Console

PIPED = 140  # columns


def console() -> Console:
    """Return standard output; a pipe or a file has no width of its own, and wraps nothing."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED)
