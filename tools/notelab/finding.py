"""A finding: a rule that is broken at one place in a file."""

from pathlib import Path

import msgspec

from notelab.codes import RULES
from notelab.page.citation import Span


class Finding(msgspec.Struct, frozen=True):
    """A broken rule. `message` says what is wrong; `help` is the nearest fix.

    `filename` is a POSIX path, relative to the working directory.
    """

    code: str
    filename: str
    span: Span
    message: str
    expected: str = ""
    found: str = ""
    help: str = ""

    @property
    def name(self) -> str:
        """Return the rule's name."""
        return RULES[self.code]

    @property
    def details(self) -> list[str]:
        """Return a line for each given detail: what was expected, what was found, and the fix."""
        labelled = (("expected", self.expected), ("found", self.found), ("help", self.help))
        return [f"{label}: {text}" for label, text in labelled if text]

    @property
    def order(self) -> tuple[str, int, int, str, str, list[str]]:
        """Return the key by which findings are sorted: file, position, code, and their text."""
        place = self.filename, self.span.row, self.span.column
        return (*place, self.code, self.message, self.details)


TOP = Span(1, 1, 1, 1)


def find_text(path: Path, text: str, table: str = "") -> Span:
    """Return where a file first holds `text`, below the TOML heading `[table]` if one is given.

    If the file doesn't hold it, return the top of the file.
    """
    in_table = not table
    for row, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        if table and line.lstrip().startswith("["):
            in_table = table in line
        column = line.find(text)
        if in_table and column >= 0:
            return Span(row, column + 1, row, column + 1 + len(text))
    return TOP
