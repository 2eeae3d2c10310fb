"""A page as the rules see it: its place, its text and its parsed contents."""

import msgspec

from notelab.cache import CacheFile, cache_key, get_or_compute
from notelab.errors import display_path
from notelab.finding import Finding
from notelab.lab import pages
from notelab.lab.pages import Page
from notelab.page.citation import Span
from notelab.page.note import Note


class ParsedPage(msgspec.Struct):
    """A page that was read; `note` is None if that failed, and then `problem` says why."""

    page: Page
    filename: str
    text: str
    problem: str
    note: Note | None
    digest: str = ""  # of the text, as a key of cached results

    @property
    def exists(self) -> bool:
        """Tell whether the file exists."""
        return self.note is not None or self.problem != ""

    def finding(self, code: str, span: Span, message: str, **details: str) -> Finding:
        """Return a finding on this page; `details` are its `expected`, `found` and `help`."""
        return Finding(code, self.filename, span, message, **details)


def parse(page: Page, cache: CacheFile) -> ParsedPage:
    """Read and parse a page; a missing page has neither note nor problem."""
    page_text = pages.Text("", page.problem) if page.problem else pages.read(page.path)
    return parse_text(page, page_text, cache)


def parse_text(page: Page, page_text: pages.Text, cache: CacheFile) -> ParsedPage:
    """Parse the text of a page."""
    filename = display_path(page.path)
    if page_text.problem:
        problem = page_text.problem if page_text.problem != pages.MISSING else ""
        return ParsedPage(page, filename, "", problem, None)
    source_text = page_text.text
    digest = cache_key(source_text)
    note = get_or_compute(cache, "note", digest, Note, lambda: _parse_markdown(source_text))
    return ParsedPage(page, filename, source_text, "", note, digest)


def _parse_markdown(text: str) -> Note:
    from notelab.page import reading  # a cached page doesn't need its patterns

    return reading.read(text)
