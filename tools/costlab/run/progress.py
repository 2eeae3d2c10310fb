"""What a run shows while it measures: a live board on a terminal, plain lines elsewhere.

It goes to standard error; standard output is for what was asked for. The board is drawn twice a
second and no more: the ranks that measure need the cores.
"""

from __future__ import annotations

import io
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

import click
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

PLAIN_EVERY = 5.0  # seconds between plain progress lines


class Plain:
    """One line when a section starts and ends, and every few seconds in between."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = 0.0
        self._section = ""

    def begin(self, section: str, line: str = "") -> None:
        """A section starts."""
        self._section, self._last = section, time.monotonic()
        self._say(f"{section} … {line}".rstrip())

    def step(self, line: str) -> None:
        """Say how far it is."""
        if time.monotonic() - self._last >= PLAIN_EVERY:
            self._last = time.monotonic()
            self._say(f"{self._section}: {line}")

    def end(self, section: str, line: str, *, well: bool) -> None:
        """A section ended, well or not."""
        self._say(f"{section}: {line}" if well else f"{section}: BROKE OFF: {line}")

    def _say(self, line: str) -> None:
        click.echo(line, file=self._stream)


class Board(Progress):
    """A table of the sections, redrawn in place; the last state stays on the screen."""

    def __init__(self, console: Console, sections: list[str]) -> None:
        super().__init__(
            TextColumn("{task.fields[mark]}"), TextColumn("{task.description}"),
            TimeElapsedColumn(), TextColumn("{task.fields[line]}", markup=False),
            console=console, refresh_per_second=2,
        )  # fmt: skip
        self._of = {
            name: self.add_task(name, start=False, total=None, mark="·", line="")
            for name in sections
        }
        self._now = sections[0]

    def begin(self, section: str, line: str = "") -> None:
        """A section starts."""
        self._now = section
        self.start_task(self._of[section])
        self.update(self._of[section], mark="[bold]…[/]", line=line)

    def step(self, line: str) -> None:
        """Say how far it is."""
        self.update(self._of[self._now], line=line)

    def end(self, section: str, line: str, *, well: bool) -> None:
        """A section ended, well or not."""
        self.stop_task(self._of[section])
        mark = "[green]✓[/]" if well else "[bold red]✗[/]"
        self.update(self._of[section], mark=mark, line=line)


Display = Plain | Board


def display(sections: list[str], *, speaks: bool = True) -> AbstractContextManager[Display]:
    """Return what suits standard error; `speaks` is false on ranks that keep quiet."""
    if not speaks:
        return nullcontext(Plain(io.StringIO()))
    console = Console(stderr=True)
    if console.is_terminal:
        return Board(console, sections)
    return nullcontext(Plain(sys.stderr))
