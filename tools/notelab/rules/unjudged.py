"""N230, N232: what only looks like a citation, and links to whole files of a source."""

from collections.abc import Iterator

from notelab.book.evidence import State
from notelab.book.parsed_page import ParsedPage
from notelab.book.settling import files_of
from notelab.book.workbook import Workbook
from notelab.report.finding import Finding

STRICT = "N230"  # said under `--strict`, and counted otherwise


def findings(book: Workbook, view: ParsedPage) -> Iterator[Finding]:
    """Judge a page's links to whole files, and say what of it was not judged."""
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
                    expected="a file of that commit",
                    help="closest: " + ", ".join(f"`{one}`" for one in file.suggestions)
                    if file.suggestions
                    else "",
                )
    for one in view.note.mentions:
        if book.settling.knows(one.path):
            yield view.finding(
                STRICT,
                one.span,
                f"“{one.text[:80]}” looks like a citation and is not judged",
                expected="a citation, such as `path:L4-L6`; or words that give no lines",
            )
