"""N103, N123: checks that a note names the commits that it was written for: the pins."""

from collections.abc import Iterator

from notelab.book.parsed_page import ParsedPage
from notelab.errors import display_path
from notelab.finding import Finding
from notelab.lab.lab import Lab
from notelab.lab.pins import Pin
from notelab.page.note import CommitPrefix, Note

_HEX = frozenset("0123456789abcdef")


def findings(lab: Lab, view: ParsedPage, note: Note, pins: dict[str, Pin]) -> Iterator[Finding]:
    """Check a note's front matter."""
    front = note.front
    if front.problem:
        yield view.finding(
            "N103",
            front.span,
            f"the note {front.problem}",
            expected="`title`, and `commit` with a row for each source cited",
        )
        return
    rows = {row.source: row for row in front.commits}
    required = lab.sources if len(lab.sources) == 1 and note.citations else {}
    for source in view.page.table.sources or required:
        pin = pins.get(source)
        if source not in rows:
            pinned_prefix = pin.commit[:12] if pin and pin.commit else "…"
            yield view.finding(
                "N123",
                front.span,
                f"the note doesn't say which commit of `{source}` it read",
                expected=f"a row `{source}: {pinned_prefix}` under `commit:`",
                found=", ".join(f"`{name}`" for name in rows) or "no `commit` table",
            )
    for row in front.commits:
        yield from _check_row(view, row, pins)


def _check_row(view: ParsedPage, row: CommitPrefix, pins: dict[str, Pin]) -> Iterator[Finding]:
    source, prefix, span = row.source, row.prefix, row.span
    pin, lower = pins.get(source), prefix.lower()
    if pin is None:
        yield view.finding(
            "N123",
            span,
            f"the note names a commit of `{source}`, which is no source of this lab",
            expected=" or ".join(f"`{name}`" for name in pins),
            found=f"`{source}`",
        )
    elif len(lower) < 7 or len(lower) > 40 or not _HEX.issuperset(lower):
        yield view.finding(
            "N123",
            span,
            f"the value of `{source}` under `commit` is not the beginning of a commit",
            expected="7 to 40 hexadecimal digits",
            found=f"`{prefix[:60]}`",
            help=f"write `{source}: {pin.commit[:12]}`" if pin.commit else "",
        )
    elif pin.commit and not pin.commit.startswith(lower):
        yield view.finding(
            "N123",
            span,
            f"the note was written for another commit of `{source}` than the pin",
            expected=f"`{pin.commit[:12]}` ({display_path(pin.path)})",
            found=f"`{prefix}`",
            help="read the citations again at the pin, then write its prefix",
        )
