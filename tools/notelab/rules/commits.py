"""N103, N120 to N124: checks pins, releases, and the commits that notes were written for."""

from collections.abc import Iterator

from notelab.book.workbook import Workbook
from notelab.errors import display_path
from notelab.finding import TOP, Finding, find_text
from notelab.lab.lab import LAB_FILE, Lab
from notelab.lab.pages import ParsedPage
from notelab.lab.pins import Pin, format_command
from notelab.page.note import CommitPrefix, Note
from notelab.sources.answers import WORKTREE

_HEX = frozenset("0123456789abcdef")


def pin_findings(book: Workbook) -> Iterator[Finding]:
    """Check the pins; each problem is reported once, not once per citation."""
    for name, pin in book.pins.items():
        code, message, actual = pin.code, pin.problem, pin.actual or "no file"
        expected = "40 hexadecimal digits and a newline"
        if pin.commit and (reason := book.evidence.unknown_commit(name)):
            code, message = "N122", f"the commit in the pin of `{name}` doesn't exist in its source"
            expected, actual = "a commit that the source has", reason
        if code:
            fix = f"write it with `{format_command(pin)}`"
            place = display_path(pin.path)
            yield Finding(code, place, TOP, message, expected=expected, found=actual, help=fix)


def release_findings(book: Workbook) -> Iterator[Finding]:
    """Check that each release in lab.toml is the tag at the pin, if the tags can be read."""
    for name, pin in book.pins.items():
        release = book.lab.sources[name].release
        source, library = book.evidence.source(name), book.evidence.library
        tag = library.release_tag(source) if release and pin.commit else None
        if tag is None or tag.commit == pin.commit:
            continue
        path = book.lab.pins_folder / LAB_FILE
        at_pin = [f"`{tag_name}`" for tag_name in library.tags_at(source)[:3]]
        command = format_command(pin, release)
        yield Finding(
            "N124",
            display_path(path),
            find_text(path, f'"{release}"', f"[sources.{name}]"),
            f"the release of `{name}` is not a tag of its pin",
            expected=f"a tag of commit {pin.commit[:12]}",
            found=f"{tag.who} says that `{release}` is {tag.commit[:12]}"
            if tag.commit
            else f"{tag.who} has no tag `{release}`",
            help=(f"tag at the pin: {', '.join(at_pin)}; " if at_pin else "")
            + (
                f"`{command}` pins the tag's commit"
                if tag.commit
                else "write the pin's tag as `release`"
            ),
        )


def commit_findings(
    lab: Lab, view: ParsedPage, note: Note, pins: dict[str, Pin]
) -> Iterator[Finding]:
    """Check that a note names the commits that it was written for: the pins."""
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
        if source not in rows and not (pin and pin.commit == WORKTREE):
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
    elif pin.commit not in ("", WORKTREE) and not pin.commit.startswith(lower):
        yield view.finding(
            "N123",
            span,
            f"the note was written for another commit of `{source}` than the pin",
            expected=f"`{pin.commit[:12]}` ({display_path(pin.path)})",
            found=f"`{prefix}`",
            help="read the citations again at the pin, then write its prefix",
        )
