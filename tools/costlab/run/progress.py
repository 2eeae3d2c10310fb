"""What a run shows while it measures: a live board on a terminal, plain lines elsewhere.

It goes to standard error; standard output is for what was asked for. The board is drawn twice a
second and no more: the ranks that measure need the cores.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TextIO

import click
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

PLAIN_EVERY = 5.0  # seconds between plain progress lines


class Plain:
    """One line when a section starts and ends, and every few seconds in between."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = 0.0
        self._section = ""

    def begin(self, section: str) -> None:
        """A section starts."""
        self._section, self._last = section, time.monotonic()
        self._say(f"{section} …")

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


class Board:
    """A table of the sections, redrawn in place."""

    def __init__(self, console: Console, sections: list[str]) -> None:
        self._rows = dict.fromkeys(sections, ("waits", "", 0.0))
        self._spinner = Spinner("dots")
        self._since = 0.0
        self._live = Live(
            get_renderable=self._table, console=console, refresh_per_second=2, transient=False
        )
        self._now = ""

    @contextmanager
    def drawn(self) -> Iterator[Board]:
        """Draw it from now on, and leave the last state on the screen."""
        with self._live:
            try:
                yield self
            finally:
                self._now = ""

    def begin(self, section: str) -> None:
        """A section starts."""
        self._now, self._since = section, time.monotonic()
        self._rows[section] = ("runs", "", 0.0)

    def step(self, line: str) -> None:
        """Say how far it is."""
        if self._now:
            self._rows[self._now] = ("runs", line, 0.0)

    def end(self, section: str, line: str, *, well: bool) -> None:
        """A section ended, well or not."""
        taken = time.monotonic() - self._since
        self._rows[section] = ("done" if well else "broke off", line, taken)
        self._now = ""

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, (state, line, taken) in self._rows.items():
            if name == self._now:
                clock = f"{time.monotonic() - self._since:4.0f} s"
                table.add_row(self._spinner, Text(name, "bold"), clock, Text(line, "dim"))
                continue
            mark = {"done": Text("✓", "green"), "broke off": Text("✗", "bold red")}
            clock = f"{taken:4.0f} s" if taken else ""
            style = "red" if state == "broke off" else "dim" if state == "waits" else ""
            table.add_row(mark.get(state, Text("·", "dim")), Text(name, style), clock, Text(line))
        return table


Display = Plain | Board


def display(sections: list[str], *, speaks: bool = True) -> AbstractContextManager[Display]:
    """Return what suits standard error; `speaks` is false on ranks that keep quiet."""
    if not speaks:
        return nullcontext(Plain(io.StringIO()))
    console = Console(stderr=True)
    if console.is_terminal:
        return Board(console, sections).drawn()
    return nullcontext(Plain(sys.stderr))
