"""What a command says: lines on standard output, asides on standard error, colour, progress."""

import os
import sys

import click

from notelab.errors import plain

FAULT = 2  # the exit status of a command that couldn't do its work


def count(what: str, done: int, of: int) -> None:
    """Write how far something is over what was written before; a terminal alone is told."""
    if sys.stderr and sys.stderr.isatty():
        end = "\r" if done < of else "\n"
        write(f"{done:,} of {of:,} {what}{end}", aside=True)


def say(*lines: str, aside: bool = False) -> None:
    """Print lines that may hold a note's or a remote's words, on standard error if asides."""
    for line in lines:
        write(f"{plain(line)}\n", aside=aside)


def write(text: str, *, aside: bool = False) -> None:
    """Print text as it is. A reader that went away (`| head`) is no fault worth a word."""
    try:
        click.echo(text, nl=False, err=aside, color=colour() and not aside)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if aside else sys.stdout).fileno())
        sys.exit(FAULT)


def colour() -> bool:
    """Tell whether what reads standard output wants colour."""
    if os.environ.get("NO_COLOR"):
        return False
    # Standard output may have been closed (`>&-`).
    return bool(os.environ.get("FORCE_COLOR")) or bool(sys.stdout and sys.stdout.isatty())
