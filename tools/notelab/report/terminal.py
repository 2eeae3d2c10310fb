"""How a command prints: lines on standard output, notes on standard error, colour, and progress."""

import os
import sys
from pathlib import Path

import click

from notelab.errors import sanitize

EXIT_FAULT = 2  # the exit status of a command that could not do its work


def print_progress(noun: str, done: int, total: int) -> None:
    """Print a progress line over the previous one; only if standard error is a terminal."""
    if sys.stderr and sys.stderr.isatty():
        end = "\r" if done < total else "\n"
        write(f"{done:,} of {total:,} {noun}{end}", stderr=True)


def say(*lines: str, stderr: bool = False) -> None:
    """Print lines that may hold untrusted text; with `stderr`, on standard error."""
    for line in lines:
        write(f"{sanitize(line)}\n", stderr=stderr)


def write(text: str, *, stderr: bool = False) -> None:
    """Print text unchanged. If the reader has gone away (`| head`), exit without a message."""
    try:
        click.echo(text, nl=False, err=stderr, color=wants_colour() and not stderr)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if stderr else sys.stdout).fileno())
        sys.exit(EXIT_FAULT)


def wants_colour() -> bool:
    """Return whether standard output should be coloured."""
    if os.environ.get("NO_COLOR"):
        return False
    # Standard output may have been closed (`>&-`).
    return bool(os.environ.get("FORCE_COLOR")) or bool(sys.stdout and sys.stdout.isatty())


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


mirror_option = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="NAME=DIR",
    help="Read source NAME from a clone on disk, bare or not (also: SHARDBOOK_MIRROR_NAME).",
)
offline_option = click.option(
    "--offline", is_flag=True, help="Ask no remote; use the store, mirrors and installed packages."
)
lab_option = click.option(
    "--lab",
    "lab_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The lab's folder, if several labs have the source.",
)
paths_argument = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
