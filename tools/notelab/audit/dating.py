"""Dates citations: at which commits of its repository a document's line got its numbers."""

import re

import msgspec

from notelab.audit.repository import Repository
from notelab.lines import split_lines

_BLAME = re.compile(rb"([0-9a-f]{40}) \d+ (\d+)(?: \d+)?\Z")
_UNCOMMITTED = "0" * 40
# The first line of an entry of the log; no line of a diff begins with NUL.
_ENTRY = re.compile(r"^\0([0-9a-f]{40})$", re.MULTILINE)


class History(msgspec.Struct):
    """Where the rows of a document come from.

    `commits` is the commit that last changed each row, '' for a row that isn't committed. `log` is
    each commit of the document, newest first, with the text that it added and the one it removed.
    """

    commits: dict[int, str] = {}
    log: list[tuple[str, str, str]] = []
    writers: dict[str, str] = {}

    def dates(self, row: int, written: str) -> list[str]:
        """Return the commits at which a citation may have been read, the likeliest first.

        A commit that only rewords a line keeps the numbers that an earlier one wrote.
        """
        if written not in self.writers:
            self.writers[written] = self._find_writer(written) if written else ""
        dates = self.commits.get(row, ""), self.writers[written]
        return list(dict.fromkeys(filter(None, dates)))

    def _find_writer(self, written: str) -> str:
        """Return the newest commit that added a citation's text, or ''."""
        pattern = re.compile(re.escape(written) + r"(?!\d)")
        for commit, added, removed in self.log:
            if len(pattern.findall(added)) > len(pattern.findall(removed)):
                return commit
        return ""


def read_history(repository: Repository, document: str, ref: str) -> History:
    """Return the history of a document: of its working copy, or at `ref` if that isn't empty."""
    history = History()
    arguments = ("blame", "--porcelain", *([ref] if ref else []), "--", document)
    ran = repository.git.run(*arguments, timeout=120)
    if ran.status:
        return history  # never committed
    for line in ran.out.split(b"\n"):
        if match := _BLAME.match(line):
            commit = match[1].decode()
            history.commits[int(match[2])] = "" if commit == _UNCOMMITTED else commit
    ran = repository.git.run(
        *("log", "--format=%x00%H", "-p", "-U0", "--no-color", "--no-ext-diff", "--no-textconv"),
        *("--follow", ref or "HEAD", "--", document),
        timeout=120,
    )
    _, *entries = _ENTRY.split(ran.out.decode("utf-8", "replace"))
    for commit, diff in zip(entries[::2], entries[1::2], strict=True):
        lines = split_lines(diff)
        added = "\n".join(line[1:] for line in lines if line[:1] == "+" and line[:4] != "+++ ")
        removed = "\n".join(line[1:] for line in lines if line[:1] == "-" and line[:4] != "--- ")
        history.log.append((commit, added, removed))
    return history
