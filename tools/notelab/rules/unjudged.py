"""N230, N232: checks links to whole files, and reports what only looks like a citation."""

from collections.abc import Iterator

from notelab.book.evidence import State
from notelab.book.parsed_page import ParsedPage
from notelab.book.settling import files_of
from notelab.book.workbook import Workbook
from notelab.finding import Finding

STRICT = "N230"  # a finding under `--strict`, only counted otherwise


def findings(book: Workbook, view: ParsedPage) -> Iterator[Finding]:
    """Check a page's links to whole files, and report its mentions of paths with lines."""
    if view.note is None:
        return
    for link in view.note.files:
        for source, path in files_of([link], book.pins, book.resolver):
            file = book.evidence.file(source, path)
            if file and file.state is State.ABSENT:
                yield view.finding(
                    "N232",
                    link.span,
                    f"the link is to `{path}`, which `{source}` doesn't have at its pin",
                    expected="a file of the pinned commit",
                    help="closest: " + ", ".join(f"`{path}`" for path in file.suggestions)
                    if file.suggestions
                    else "",
                )
    for mention in view.note.mentions:
        if book.settling.knows(mention.path):
            yield view.finding(
                STRICT,
                mention.span,
                f"“{mention.text[:80]}” looks like a citation but is not judged",
                expected="a citation such as `path:L4-L6`, or text without a line number",
            )
