"""N1xx: the stop conditions of a page and of the lab's pins."""

from collections.abc import Iterator

from notelab.book.view import View, shown
from notelab.lab.lab import Lab
from notelab.lab.pins import Pin
from notelab.page.citation import Span
from notelab.page.note import Cell, Heading, Note
from notelab.report.finding import TOP, Finding


def pin_findings(pins: dict[str, Pin]) -> Iterator[Finding]:
    """Judge the pin files."""
    for pin in pins.values():
        if pin.code:
            yield Finding(
                pin.code,
                shown(pin.path),
                TOP,
                pin.problem,
                expected="40 hexadecimal digits and a newline",
                found=pin.found or "no file",
                help=f"write it with `shardbook pin {pin.source} REF`",
            )


def page_findings(lab: Lab, view: View, pins: dict[str, Pin]) -> Iterator[Finding]:
    """Judge a page's files, words, choices and closing."""
    if view.note is None:
        yield from _unread(view)
        return
    for part in view.note.unread:
        yield Finding(
            "N102",
            view.filename,
            part.span,
            f"the page {part.reason}",
            expected="paragraphs, lists and quotations of a size that people read",
        )
    for hidden in view.note.hidden:
        yield Finding(
            "N113",
            view.filename,
            hidden.span,
            f"the page holds a character that nobody sees: {hidden.name}",
            expected="text that reads as it is written",
            help="take it out, or write the line anew",
        )
    if view.page.is_note:
        yield from _front_matter(lab, view, view.note, pins)
    yield from _words(view, view.note)
    yield from _choices(view, view.note)
    yield from _closing(lab, view, view.note)


def _unread(view: View) -> Iterator[Finding]:
    if view.problem:
        yield Finding(
            "N102",
            view.filename,
            TOP,
            f"the page {view.problem}",
            expected="a Markdown file in UTF-8 of at most 256 KiB",
        )
    elif view.page.original is None:
        yield Finding(
            "N101",
            view.filename,
            TOP,
            "a page that lab.toml asks for is missing",
            expected="the file",
            found="no file",
            help="write it, or take its table out of lab.toml",
        )


def _front_matter(lab: Lab, view: View, note: Note, pins: dict[str, Pin]) -> Iterator[Finding]:
    front = note.front
    if front.problem:
        yield Finding(
            "N103",
            view.filename,
            front.span,
            f"the note {front.problem}",
            expected="`title`, and `commit` with a row for each source cited",
        )
        return
    named = {row.source: row for row in front.commits}
    for source in view.page.table.sources or _cited_sources(lab, view):
        pin = pins.get(source)
        if source not in named:
            known = f"  {source}: {pin.commit[:12]}" if pin and pin.commit else f"  {source}: …"
            yield Finding(
                "N123",
                view.filename,
                front.span,
                f"the note doesn't say which commit of `{source}` it read",
                expected=f"a row `{known.strip()}` under `commit:`",
                found=", ".join(f"`{name}`" for name in named) or "no `commit` table",
            )
    for row in front.commits:
        yield from _commit_row(view, row.source, row.prefix, row.span, pins)


def _cited_sources(lab: Lab, view: View) -> list[str]:
    if len(lab.sources) == 1 and view.note and view.note.citations:
        return list(lab.sources)
    return []


def _commit_row(
    view: View, source: str, prefix: str, span: Span, pins: dict[str, Pin]
) -> Iterator[Finding]:
    pin = pins.get(source)
    lower = prefix.lower()
    if pin is None:
        yield Finding(
            "N123",
            view.filename,
            span,
            f"the note names a commit of `{source}`, which is no source of this lab",
            expected=" or ".join(f"`{name}`" for name in pins),
            found=f"`{source}`",
        )
    elif len(lower) < 7 or len(lower) > 40 or set(lower) - set("0123456789abcdef"):
        yield Finding(
            "N123",
            view.filename,
            span,
            f"the commit of `{source}` is no prefix of a commit",
            expected="7 to 40 hexadecimal digits",
            found=f"`{prefix[:60]}`",
            help=f"write `{source}: {pin.commit[:12]}`" if pin.commit else "",
        )
    elif pin.commit and not pin.commit.startswith(lower):
        yield Finding(
            "N123",
            view.filename,
            span,
            f"the note was written for another commit of `{source}` than the pin",
            expected=f"`{pin.commit[:12]}` ({shown(pin.path)})",
            found=f"`{prefix}`",
            help="read the citations again at the pin, then write its prefix",
        )


def _words(view: View, note: Note) -> Iterator[Finding]:
    most = view.page.table.max_words
    if most is not None and note.words > most:
        yield Finding(
            "N104",
            view.filename,
            TOP,
            f"the note has {note.words} words",
            expected=f"at most {most}",
            found=f"{note.words}",
            help=f"cut {note.words - most}",
        )


def _choices(view: View, note: Note) -> Iterator[Finding]:
    table = view.page.table
    cited = [choice for choice in note.choices if choice.citations]
    if table.min_choices is None:
        if table.choice_words is None:
            return
    elif len(cited) < table.min_choices:
        bare = len(note.choices) - len(cited)
        uncited = f", and {bare} without a citation" if bare else ""
        yield Finding(
            "N105",
            view.filename,
            TOP,
            f"the note has {len(cited)} cited choices",
            expected=f"at least {table.min_choices} top-level `- ` bullets with a citation each",
            found=f"{len(cited)}{uncited}",
        )
    for number, choice in enumerate(note.choices, start=1):
        yield from _choice(view, number, choice)


def _choice(view: View, number: int, choice: Cell) -> Iterator[Finding]:
    called = f"choice {number}" + (f" ({choice.title.rstrip('.')})" if choice.title else "")
    limits = view.page.table.choice_words
    if limits and not limits[0] <= choice.words <= limits[1]:
        low, high = limits
        short = choice.words < low
        away = low - choice.words if short else choice.words - high
        yield Finding(
            "N106",
            view.filename,
            choice.span,
            f"{called} has {choice.words} words",
            expected=f"{low} to {high}",
            found=f"{choice.words}",
            help=f"{'add' if short else 'cut'} {away}",
        )
    if not choice.title:
        yield Finding(
            "N107",
            view.filename,
            choice.span,
            f"{called} doesn't open with a bold title",
            expected="`- **Title.** …`",
            found=f"`{' '.join(choice.prose.split())[:40]}`",
        )
    if not choice.citations:
        yield Finding(
            "N108",
            view.filename,
            choice.span,
            f"{called} cites nothing",
            expected="at least one citation such as `path/file.py:L10-L14`",
            found="none",
            help="`shardbook cite SOURCE SYMBOL` prints one",
        )


def _closing(lab: Lab, view: View, note: Note) -> Iterator[Finding]:
    mentions = view.page.table.closing_mentions.get(view.page.language)
    if not mentions:
        return
    wanted = lab.closing_heading(view.page.language)
    places = [index for index, heading in enumerate(note.headings) if _same(heading.text, wanted)]
    sections = [heading for heading in note.headings if heading.level <= 2]
    if not places:
        yield Finding(
            "N109",
            view.filename,
            TOP,
            "the note has no closing",
            expected=f"a last section `## {wanted}`",
            found=f"last section `{sections[-1].text}`" if sections else "no section",
        )
        return
    closing = note.headings[places[-1]]
    if places[-1] != len(note.headings) - 1 or closing.level != 2:
        after = note.headings[-1].text
        yield Finding(
            "N110",
            view.filename,
            closing.span,
            "the closing is not the last section",
            expected=f"nothing after `## {wanted}`",
            found=f"`{after}`"
            if places[-1] != len(note.headings) - 1
            else f"level {closing.level}",
        )
    yield from _closing_text(view, closing, mentions)


def _closing_text(view: View, closing: Heading, mentions: list[str]) -> Iterator[Finding]:
    if closing.paragraphs != 1 or closing.other_blocks:
        other = f" and {closing.other_blocks} other blocks" if closing.other_blocks else ""
        yield Finding(
            "N111",
            view.filename,
            closing.span,
            "the closing is not one paragraph",
            expected="one paragraph and nothing else",
            found=f"{closing.paragraphs} paragraphs{other}",
        )
    prose = " ".join(closing.prose.split()).casefold()
    if not any(mention.casefold() in prose for mention in mentions):
        yield Finding(
            "N112",
            view.filename,
            closing.span,
            "the closing ties back to nothing",
            expected="one of " + ", ".join(f"“{mention}”" for mention in mentions),
            found=f"“{prose[:60]}…”" if prose else "no prose",
        )


def _same(one: str, other: str) -> bool:
    return " ".join(one.split()).casefold() == other.casefold()
