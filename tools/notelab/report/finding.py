"""A finding: one rule that one place of one file breaks."""

import msgspec

from notelab.page.citation import Span
from notelab.rules.codes import RULES


class Finding(msgspec.Struct, frozen=True):
    """`message` says what is wrong; `expected`, `found` and `help` (the nearest mend) say the rest.

    `filename` is POSIX, relative to the working directory.
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
        """Return what was expected, what was found and the mend, a line each, where said."""
        labelled = (("expected", self.expected), ("found", self.found), ("help", self.help))
        return [f"{label}: {text}" for label, text in labelled if text]

    @property
    def order(self) -> tuple[str, int, int, str, str, list[str]]:
        """Return what findings are sorted by: file, place, code, and what else they say."""
        place = self.filename, self.span.row, self.span.column
        return (*place, self.code, self.message, self.details)


TOP = Span(1, 1, 1, 1)
