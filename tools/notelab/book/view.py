"""A page as the rules see it: its place, its text, what it says."""

import msgspec

from notelab.cache import CacheFile, cache_key, get_or_compute
from notelab.errors import display_path
from notelab.lab import pages
from notelab.lab.pages import Page
from notelab.page.citation import Span
from notelab.page.note import Note
from notelab.report.finding import Finding


class View(msgspec.Struct):
    """A page that was read. `note` is None where it couldn't be, and `problem` says why."""

    page: Page
    filename: str
    text: str
    problem: str
    note: Note | None
    digest: str = ""  # of the text, for what is remembered of it

    @property
    def exists(self) -> bool:
        """Tell whether there is a file at all."""
        return self.note is not None or self.problem != ""

    def finding(self, code: str, span: Span, message: str, **said: str) -> Finding:
        """Return a finding at a place of this page; `said` are its `expected`, `found`, `help`."""
        return Finding(code, self.filename, span, message, **said)


def of_page(page: Page, cache: CacheFile) -> View:
    """Read a page; one that isn't there has neither note nor problem."""
    filename = display_path(page.path)
    text = pages.Text("", page.problem) if page.problem else pages.read(page.path)
    if text.problem:
        problem = text.problem if text.problem != pages.MISSING else ""
        return View(page, filename, "", problem, None)
    said = text.text
    digest = cache_key(said)
    note = get_or_compute(cache, "note", digest, Note, lambda: _read(said))
    return View(page, filename, said, "", note, digest)


def _read(text: str) -> Note:
    from notelab.page import reading  # whose patterns a page that is remembered doesn't need

    return reading.read(text)
