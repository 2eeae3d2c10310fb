"""A citation with all that the rules need to check it."""

import re

import msgspec

from notelab.book.parsed_page import ParsedPage
from notelab.finding import Finding
from notelab.lines import is_anchor
from notelab.page.citation import Citation, group_ranges
from notelab.page.note import ProseBlock

_SENTENCE_END = re.compile(r"[.!?][*_)\"”»]*\s+(?=[*_(\"“«¿¡`]*[A-ZÁÉÍÓÚÑ])")


class CitationContext(msgspec.Struct):
    """A citation, the block and the page that hold it, and what the rules find out about it.

    `occurrences` is how often the page cites the same lines. `fix_hint` caches the range that would
    fit. `moved_from` is the nearby citation of this page that the lock knows, from which this
    citation probably moved. `quoted` are the identifiers of a quotation of the cited lines.
    """

    view: ParsedPage
    block: ProseBlock
    citation: Citation
    max_lines: int
    occurrences: int
    fix_hint: str | None = None
    moved_from: str = ""
    quoted: frozenset[str] = frozenset()

    @property
    def page(self) -> str:
        """Return the page's name in the lock."""
        return self.view.page.key

    @property
    def anchors(self) -> set[str]:
        """Return the identifiers that the text around the citation names or quotes."""
        return {name for name in self.block.names if is_anchor(name)} | self.quoted

    @property
    def ranges(self) -> list[Citation]:
        """Return the citations that share this one's path: the ranges that follow it."""
        groups = group_ranges(self.block.citations, lambda each: each.form)
        return next(group for group in groups if self.citation in group)

    @property
    def sentence(self) -> str:
        """Return the sentence that holds the citation, on one line."""
        span, block = self.citation.span, self.block.span
        rows = self.view.text.split("\n")[block.row - 1 : max(block.end_row, block.row)]
        place = span.row - block.row
        offset = sum(len(row) + 1 for row in rows[:place]) + span.column - 1
        text = "\n".join(rows)
        cuts = [0, *(match.end() for match in _SENTENCE_END.finditer(text))]
        start = max(cut for cut in cuts if cut <= offset)
        end = min((cut for cut in cuts if cut > offset), default=len(text))
        return " ".join(text[start:end].split())[:300]

    def finding(self, code: str, message: str, **details: str) -> Finding:
        """Return a finding at the citation's position; for `details` see `View.finding`."""
        return self.view.finding(code, self.citation.span, message, **details)


def format_names(names: list[str]) -> str:
    """Return up to six names as a comma-separated list, and how many more there are."""
    first_names = ", ".join(f"`{name}`" for name in names[:6])
    return first_names + (f" and {len(names) - 6} more" if len(names) > 6 else "")
